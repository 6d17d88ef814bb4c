"""Messages under way: a member's next one may start while its last is still being acknowledged, so passes overlap."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field

AT_ONCE = 2  # messages that one member may be sending another at a time

Deliver = Callable[[Callable[[], None]], None]  # called with what to call when all of the message is on the line


@dataclass
class _Parcel:
    epoch: int
    on_line: threading.Event = field(default_factory=threading.Event)
    arrived: Future[None] = field(default_factory=Future)


class Outbox:
    """A queue for each member. Two messages never share a line: the second starts when the first has left."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="outbox")
        self._queues: dict[int, list[_Parcel]] = {}

    def post(self, member: int, epoch: int, deliver: Deliver) -> None:
        """Have a message delivered after those of the same view that were posted before it."""
        queue = self._queues.setdefault(member, [])
        before = [parcel for parcel in queue if parcel.epoch == epoch][-AT_ONCE:]
        parcel = _Parcel(epoch)

        def carry() -> None:
            try:
                if before:
                    before[-1].on_line.wait()
                if len(before) == AT_ONCE:
                    wait_for([before[0].arrived])
                deliver(parcel.on_line.set)
            finally:
                parcel.on_line.set()

        parcel.arrived = self._pool.submit(carry)
        queue.append(parcel)

    def check(self, epoch: int) -> bool:
        """Whether everything has arrived; raises what went wrong with a message of this view."""
        for queue in self._queues.values():
            for parcel in [parcel for parcel in queue if parcel.arrived.done()]:
                queue.remove(parcel)
                if parcel.epoch == epoch:
                    parcel.arrived.result()
        return not any(self._queues.values())

    def close(self) -> None:
        """Deliver nothing more; what is being delivered has been told to stop."""
        self._pool.shutdown(wait=True, cancel_futures=True)
