"""What a member must never forget, whatever happens to its process: its promises in the agreement on views, on disk."""

import json
from pathlib import Path

from firma.atomic_files import replace_synced
from firma.errors import BadInput
from firma.peer.membership.views import Memory
from firma.peer.ring_file import Ring
from firma.peer.wire.control import decode_memory, encode_memory

_PROMISES, _SHARES = "promises.json", "proportions.json"


class Promises:
    """A member's memory on disk, bound to one ring file."""

    def __init__(self, folder: Path, ring: Ring) -> None:
        self._path, self._ring = folder / _PROMISES, ring

    def read(self) -> Memory | None:
        """What was promised and decided before; None if there is nothing yet."""
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            same = stored["ring"] == self._ring.digest.hex()
            members, rounds = len(self._ring.members), self._ring.rounds
            memory = decode_memory(stored["memory"], members, rounds) if same else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise BadInput(
                f"{str(self._path)!r}: cannot be read ({error}); without its promises this site must not come back: "
                "restore the file from a backup made after its last run, or start over with a new ring file"
            ) from None
        if not same:
            where = str(self._path.parent)
            raise BadInput(
                f"state folder {where!r} belongs to another ring file; pass a new --state, "
                f"and --begin-with {where} to start from its last round"
            )
        return memory

    def write(self, memory: Memory) -> None:
        """Make a memory durable; `OSError` if that cannot be, and then nothing may be sent."""
        stored = {"ring": self._ring.digest.hex(), "memory": encode_memory(memory)}
        replace_synced(self._path, json.dumps(stored).encode(), private=True)


def published_proportions(folder: Path, draw: tuple[float, ...]) -> tuple[float, ...]:
    """The class proportions as they were first published: fresh noise at every start would average out."""
    path = folder / _SHARES
    try:
        return tuple(float(share) for share in json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        replace_synced(path, json.dumps(draw).encode(), private=True)
        return draw
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise BadInput(f"{str(path)!r}: cannot be read ({error}); restore it, or start with an empty --state") from None


def keep_published_proportions(old: Path, folder: Path) -> None:
    """Take over the class proportions that were published in an earlier ring, if there were any."""
    if (old / _SHARES).exists() and not (folder / _SHARES).exists():
        replace_synced(folder / _SHARES, (old / _SHARES).read_bytes(), private=True)
