"""This member's own sign of life: what it says of itself to everybody, again and again."""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from firma.peer.council import Council
from firma.peer.desk import Desk
from firma.peer.ring_file import Ring
from firma.peer.runtime.local_training import LocalSite
from firma.peer.transport.client import Links
from firma.peer.transport.server import Reception
from firma.peer.warden import Warden
from firma.peer.wire.heartbeat import ASKING, FINISHED, RUNNING, STALLED, WAITING, Hello
from firma.peer.wire.signature import signature
from firma.peer.wire.terms import Terms, federation_tag


def terms_of(ring: Ring, site: LocalSite) -> Terms:
    """What every message must agree with."""
    return Terms(federation_tag(ring.federation), ring.digest, signature(site.layout), len(ring.task.labels))


def random_process() -> int:
    """A number for this process; started again, a member has another one."""
    return secrets.randbits(63)


class Pulse:
    """Hellos to all other members."""

    def __init__(self, ring: Ring, terms: Terms, process: int, desk: Desk, council: Council, warden: Warden) -> None:
        self.busy: Callable[[], float | None] = lambda: None  # since when this member works and waits for nobody
        self._ring, self._terms, self._process = ring, terms, process
        self._desk, self._council, self._warden = desk, council, warden
        self._others = tuple(n for n in range(len(ring.members)) if n != desk.signs.me)
        self._pause = min(ring.patience / 5, 5.0)

    @property
    def stalled(self) -> bool:
        """Whether this member has trained, or saved, for so long that it must be thought to hang."""
        busy = self.busy()
        return busy is not None and time.monotonic() - busy > self._ring.stalled

    def hello(self) -> Hello:
        """Where this member is, now."""
        terms = self._terms
        return Hello(
            terms.federation, terms.ring, terms.signature.digest, self._process, self._desk.now, time.time(),
            self._status(),
        )  # fmt: skip

    def _status(self) -> int:
        with self._desk.changed:
            if self._warden.finished:
                return FINISHED
            if self._council.member.seated:
                return STALLED if self.stalled else RUNNING
            view, alive = self._council.member.memory.view, self._desk.signs.alive()
            return ASKING if view is None or all(seat.member in alive for seat in view.ring) else WAITING

    def once(self, links: Links) -> None:
        """Tell everybody, now."""
        links.beat(self._others, self.hello(), timeout=self._pause)

    def last(self, links: Links, status: int) -> None:
        """Tell everybody that this member stops."""
        links.beat(self._others, replace(self.hello(), status=status), 1.0)

    def beat(self, links: Links, reception: Reception, stop: threading.Event) -> None:
        """Tell everybody until the end, and end messages that have stopped moving."""
        while not stop.wait(self._pause if self._council.member.seated else min(self._pause, 0.3)):
            links.beat(self._others, self.hello(), timeout=max(self._pause, 0.5))
            reception.sweep(self._ring.patience)
