"""What the members of a ring must consent to: the ring file before it starts, and an end before its last round.

Statements travel by themselves: each member hands all that it knows to every other, again and again until that one has
answered, and is answered with what the other knows. So a member's consent arrives even if it is not there now, through
any other that has seen it. When nobody has anything new to tell, nothing is sent. Where the ring file agrees on a
summary, the newest results of members that share them travel in the same way, not more often than every few seconds.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc

from firma.peer.ring_file import Ring
from firma.peer.runtime.events import PeerLost
from firma.peer.runtime.federation_results import Places, ResultBoard, places
from firma.peer.spoken import ANOTHER, differing
from firma.peer.statement_folder import StatementFolder
from firma.peer.transport.client import reason
from firma.peer.wire.statements import Statement, Statements, decode_statements, encode_statements
from firma.peer.wire.terms import WireError

_PAUSE = 0.5  # seconds between two looks at what is to be told
_RARELY = 5.0  # seconds between two tries once the ring runs
_CALL = 3.0  # seconds for a member to answer
_NEWS = 5.0  # seconds between two exchanges of results with a member; after the last round they are told at once
_AWAY = 30.0  # the same if the last exchange with it failed
FAREWELL = 10.0  # seconds in which a member that ends tells those that are there why

Exchange = Callable[[int, bytes, float], bytes]  # member, statements, seconds: its statements
Tell = Callable[[str], None]


class RingStopped(Exception):
    """A quorum of members has asked that the ring ends: this is its regular end."""


class Consent:
    """This site's statements and those of the others, exchanged by a thread of its own."""

    def __init__(
        self, ring: Ring, me: int, folder: StatementFolder, exchange: Exchange, on_stop: Callable[[], None], tell: Tell,
        on_asked: Callable[[tuple[str, ...]], None] = lambda names: None, results: ResultBoard | None = None,
        on_refused: Callable[[int, str], None] = lambda member, why: None,
    ) -> None:  # fmt: skip
        self._ring, self._me, self._folder, self._exchange = ring, me, folder, exchange
        self._on_stop, self._tell, self._on_asked = on_stop, tell, on_asked
        self._results, self._on_refused = results, on_refused  # None: the members agreed on no summary
        self._shown: dict[int, Places] = {}  # by member: the results that it has, as far as is known here
        self._lock = threading.Lock()
        self._known: dict[int, frozenset[Statement]] = {}  # by member: what it has from this site
        self._trouble: dict[int, str] = {}
        self._asked: tuple[str, ...] = ()  # members that want the ring to stop, as last told
        self._changed = threading.Event()
        self._pause = _PAUSE  # seconds between two tries of a member that cannot be reached

    # Both sides of the exchange

    def answer(self, sender: int, raw: bytes) -> bytes:
        """Take a member's statements and answer with all that are known here, also to one with another ring file."""
        found = decode_statements(raw, self._ring)
        with self._lock:
            if found.ring != self._ring.digest:
                self._trouble[sender] = differing(found.ring, self._ring.digest)
                return encode_statements(self._folder.held)
            self._trouble.pop(sender, None)
            if self._folder.add(found.signatures):
                self._changed.set()
            wrong = found.signatures.keys() - self._folder.held.signatures.keys()
            if wrong:
                kind, member = min(wrong)
                raise WireError(f"a statement ({kind}) that {self._ring.names[member]} has not signed")
            if why := self._take_results(found):
                raise WireError(why)
            held = self._held()
            self._shown[sender] = places(held.results)
            return encode_statements(held)

    def _held(self) -> Statements:
        """All that is handed on; the caller holds the lock."""
        return replace(self._folder.held, results=() if self._results is None else self._results.outgoing())

    def _take_results(self, found: Statements) -> str:
        """Keep the results that are newer; what is wrong with them, "" if nothing is."""
        wrong = () if self._results is None else self._results.take(found.results)
        return f"a result that {wrong[0]} has not signed" if wrong else ""

    def tell_member(self, member: int) -> None:
        """Hand a member all that is known here, and take what it answers; a failure is remembered."""
        with self._lock:
            held = self._held()
        try:
            raw = self._exchange(member, encode_statements(held), _CALL)
            found = decode_statements(raw, self._ring)
        except (grpc.RpcError, WireError, ValueError, OSError) as error:  # ValueError: closed at this very moment
            with self._lock:
                self._trouble[member] = reason(error)
            return
        with self._lock:
            if found.ring != self._ring.digest:
                self._trouble[member] = differing(found.ring, self._ring.digest)
                return
            self._trouble.pop(member, None)
            self._known[member] = frozenset(held.signatures)
            if self._folder.add(found.signatures):
                self._changed.set()
            why = self._take_results(found)
            theirs, ours = places(found.results), places(held.results)
            self._shown[member] = {n: max(theirs.get(n, (0, 0)), ours.get(n, (0, 0))) for n in {*theirs, *ours}}
        if why:
            self._on_refused(member, why)

    def run(self, stop: threading.Event) -> None:
        """Exchange until `stop`."""
        others = [n for n in range(len(self._ring.members)) if n != self._me]
        last = dict.fromkeys(others, float("-inf"))
        with ThreadPoolExecutor(len(others), thread_name_prefix="consent") as pool:
            while True:
                ending = stop.is_set()
                with self._lock:
                    self._folder.refresh()  # firma stop, in another process, writes there
                    mine = frozenset(self._folder.held.signatures)
                    behind = [n for n in others if self._known.get(n) != mine]
                self._announce()
                now = time.monotonic()
                due = {n for n in behind if now - last[n] >= self._pause}
                due |= {n for n in others if ending or now - last[n] >= self._patience_with(n)} & self._curious(ending)
                last |= dict.fromkeys(due, now)
                list(pool.map(self.tell_member, sorted(due)))
                if self._results is not None:
                    self._results.save()
                if ending:
                    return
                if not self._changed.wait(_PAUSE):
                    continue
                self._changed.clear()
                last = dict.fromkeys(others, float("-inf"))  # there is news

    def _curious(self, ending: bool) -> set[int]:
        """Members that lack results which are known here; at the end, all: each may have a last one to tell."""
        if self._results is None:
            return set()
        mine = places(self._results.outgoing())
        with self._lock:
            return {
                n
                for n in range(len(self._ring.members))
                if n != self._me and (ending or _lacks(self._shown.get(n, {}), mine))
            }

    def _patience_with(self, member: int) -> float:
        """Seconds between two exchanges of results with a member."""
        if self._results is not None and self._results.done():
            return _PAUSE
        with self._lock:
            return _AWAY if member in self._trouble else _NEWS

    def _announce(self) -> None:
        """Tell the operator who asks to stop, and end the ring when a quorum does."""
        with self._lock:
            asked = self._folder.by("stop")
        if asked == self._asked:
            return
        new, self._asked = [name for name in asked if name not in self._asked], asked
        self._on_asked(asked)
        if len(asked) >= self._ring.needed:
            self._on_stop()
            return
        ask = "asks" if len(new) == 1 else "ask"
        self._tell(
            f"{', '.join(new)} {ask} to stop the ring; {len(asked)} of the {self._ring.needed} members that are needed "
            "have asked: firma stop agrees, firma status shows who has"
        )

    # What others wait for

    def close(self) -> None:
        """Look once more at once, and end if that was asked for."""
        self._changed.set()

    def trouble(self, member: int) -> str:
        """Why the last exchange with a member failed; "" if it did not."""
        with self._lock:
            return self._trouble.get(member, "")

    def asked(self) -> tuple[str, ...]:
        """Members that have asked to stop the ring."""
        with self._lock:
            return self._folder.by("stop")

    def all_know(self) -> bool:
        """Whether every other member that can be reached has all that is known here."""
        with self._lock:
            mine = frozenset(self._folder.held.signatures)
            others = (n for n in range(len(self._ring.members)) if n != self._me)
            return all(self._known.get(n) == mine or n in self._trouble for n in others)

    def await_all(self, each: Callable[[], None] = lambda: None) -> None:
        """Return when all members have accepted, or the ring is stopped; `each` is called meanwhile, again and again.

        `PeerLost` after `gathering` seconds, with whose acceptance lacks.
        """
        began, said = time.monotonic(), ""
        while True:
            with self._lock:
                lacking = [n for n, name in enumerate(self._ring.names) if name in self._folder.lacking("accept")]
                told = {self._ring.names[n]: self._absence(n) for n in lacking}
                why = {self._ring.names[n]: self._trouble.get(n, self._absence(n)) for n in lacking}
            if not lacking or len(self.asked()) >= self._ring.needed:
                self._pause = _RARELY
                return
            text = "; ".join(f"{name}: {each}" for name, each in told.items())
            waited = time.monotonic() - began
            if waited > self._ring.gathering:
                reasons = "; ".join(f"{name}: {each}" for name, each in why.items())
                raise PeerLost(
                    f"not all members have accepted the ring file within {self._ring.gathering:g} s ({reasons}); each "
                    "site accepts it with firma accept"
                )
            if text != said and waited > _PAUSE:
                said = text
                self._tell(f"waiting until all members have accepted the ring file ({text})")
            each()
            time.sleep(0.05)

    def _absence(self, member: int) -> str:
        """Why a member's statement is not here, in words that do not change with every try."""
        trouble = self._trouble.get(member, "")
        if trouble.startswith(ANOTHER):
            return trouble
        if trouble or member not in self._known:
            return "no answer yet"
        return "it has not accepted"


def _lacks(theirs: Places, ours: Places) -> bool:
    return any(theirs.get(member, (0, 0)) < place for member, place in ours.items())
