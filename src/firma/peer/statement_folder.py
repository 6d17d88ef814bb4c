"""Members' statements on disk, beside this site's key: one small file per statement and ring file.

A statement is never taken back, so the folder only grows, and several processes may add to it at the same time: `firma
accept` and `firma stop` write this site's, `firma doctor` and `firma join` those that arrive. A file that does not hold
the member's signature is as good as none.
"""

from collections.abc import Mapping
from contextlib import suppress

from firma.atomic_files import write_whole
from firma.errors import BadInput
from firma.peer.identity import Identity
from firma.peer.ring_file import Ring
from firma.peer.wire.statements import KINDS, Kind, Statement, Statements, is_signed, sign

_FOLDER = "rings"


class StatementFolder:
    """The statements about one ring file that this site knows. Not for several threads at a time."""

    def __init__(self, ring: Ring, identity: Identity) -> None:
        self.ring = ring
        self._path = None if identity.folder is None else identity.folder / _FOLDER / ring.digest.hex()
        self._held: dict[Statement, bytes] = {}
        self.refresh()

    @property
    def held(self) -> Statements:
        """All that are known, each with its member's own signature."""
        return Statements(self.ring.digest, dict(self._held))

    def by(self, kind: Kind) -> tuple[str, ...]:
        """Names of the members that have made such a statement, in the order of the ring file."""
        return tuple(name for number, name in enumerate(self.ring.names) if (kind, number) in self._held)

    def lacking(self, kind: Kind) -> tuple[str, ...]:
        """Names of the members that have not, as far as is known here."""
        return tuple(name for number, name in enumerate(self.ring.names) if (kind, number) not in self._held)

    def refresh(self) -> bool:
        """Read what other processes have added; whether there was anything new."""
        if self._path is None:
            return False
        found = {}
        for number, name in enumerate(self.ring.names):
            for kind in KINDS:
                if (kind, number) not in self._held:
                    with suppress(OSError, ValueError):
                        found[kind, number] = bytes.fromhex((self._path / f"{name}.{kind}").read_text())
        return bool(self._take(found))

    def add(self, found: Mapping[Statement, bytes]) -> tuple[Statement, ...]:
        """Keep those that are new and signed by their members; which they are. A disk that is full is no obstacle."""
        new = self._take(found)
        for statement in new:
            with suppress(OSError, BadInput):  # it is known while this process lives, and can be had again
                self._write(statement)
        return new

    def make(self, identity: Identity, kind: Kind) -> bool:
        """Make this site's own statement, on disk first; False if it was made before."""
        mine = (kind, self.ring.place(identity))
        if mine in self._held:
            return False
        self._held[mine] = sign(identity, kind, self.ring.digest)
        self._write(mine)
        return True

    def _take(self, found: Mapping[Statement, bytes]) -> tuple[Statement, ...]:
        new = {
            statement: signature
            for statement, signature in found.items()
            if statement not in self._held and is_signed(self.ring, statement, signature)
        }
        self._held |= new
        return tuple(new)

    def _write(self, statement: Statement) -> None:
        if self._path is None:
            return
        kind, member = statement
        try:
            self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self._path / f"{self.ring.names[member]}.{kind}", self._held[statement].hex(), private=True)
        except OSError as error:
            raise BadInput(f"identity folder: cannot write to {str(self._path)!r} ({error.strerror})") from None
