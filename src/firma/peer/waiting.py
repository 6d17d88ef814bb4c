"""What a member does when it cannot work: wait for a seat before the rounds, and for the others after them."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from firma.peer.council import Council
from firma.peer.desk import Desk, PeerLost, Superseded
from firma.peer.membership.views import View
from firma.peer.runtime.report import OnNotice
from firma.peer.warden import Warden

_TICK = 0.1  # seconds between looks at what nobody announces


@dataclass
class Waiting:
    """Waits of the main thread, which shows the operator meanwhile what other threads have noticed."""

    rounds: int  # of the whole run
    desk: Desk
    council: Council
    warden: Warden
    on_notice: OnNotice
    tell: Callable[[], None]  # everybody where this member is

    def seat(self, after: int, done: int) -> View | None:
        """The next view that has a seat for this process; None if all rounds are done and so are the others."""
        self.warden.finished = False
        while True:
            with self.desk.changed:
                if self.desk.failure is not None:
                    raise self.desk.failure
                member = self.council.member
                if member.seated and member.epoch > after:
                    return member.memory.view
                if not member.seated:
                    if self._over() and done == self.rounds:
                        return None
                    self._give_up()
                self.desk.changed.wait(_TICK)
            self.show()

    def linger(self, view: View) -> None:
        """Stay until all of the view have finished or are gone: a last round may have to be repeated with this site."""
        with self.desk.changed:
            if self.desk.inbox is not None and self.desk.epoch == view.epoch:
                self.desk.inbox.now = (view.epoch, self.rounds + 1, 0)
        self.warden.finished = True
        self.tell()
        while True:
            with self.desk.changed:
                if self.desk.failure is not None:
                    raise self.desk.failure
                if self.desk.epoch != view.epoch:
                    if self.council.member.seated:
                        raise Superseded
                    return
                gone = set(range(len(self.desk.names))) - set(self.desk.signs.alive())
                away = {self.desk.signs.me, *self.desk.signs.finished(view), *gone}
                if all(seat.member in away for seat in view.ring):
                    return
                self.desk.changed.wait(_TICK)
            self.show()

    def show(self) -> None:
        """Tell the operator."""
        with self.desk.changed:
            said, self.desk.notices = self.desk.notices, []
        for text in said:
            self.on_notice(text)

    def _over(self) -> bool:
        """Whether those at work have all finished."""
        member = self.council.member
        working, view = self.desk.signs.at_work(member.epoch), member.memory.view
        return bool(working) and view is not None and set(working) <= set(self.desk.signs.finished(view))

    def _give_up(self) -> None:
        """`PeerLost` if the others never came, or have finished."""
        signs, epoch = self.desk.signs, self.council.member.epoch
        alive = signs.alive()
        missing = [n for n in range(len(signs.names)) if n not in alive]
        enough = self.council.rules.quorum if epoch else len(signs.names)
        over = time.monotonic() - signs.started > signs.patience.gathering
        if over and not self.warden.seated_once and len(alive) < enough:
            why = "; ".join(f"{signs.names[n]}: {signs.trouble.get(n, 'no answer')}" for n in missing)
            names = ", ".join(signs.names[n] for n in missing)
            raise PeerLost(f"{names} did not appear within {signs.patience.gathering:g} s ({why})")
        if self._over():
            raise PeerLost("the ring has finished without this site")
