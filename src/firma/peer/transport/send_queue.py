"""The send queue: a member's next message may start while its last one is being acknowledged, so passes overlap."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field

AT_ONCE = 2  # messages that one member may be sending another at a time

Deliver = Callable[[Callable[[], None]], None]  # called with what to call when all of the message is on the line


@dataclass
class _Queued:
    view_number: int
    on_line: threading.Event = field(default_factory=threading.Event)
    delivered: Future[None] = field(default_factory=Future)


class SendQueue:
    """One queue per member. Two messages never share a connection: the second starts when the first has left."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="send")
        self._queues: dict[int, list[_Queued]] = {}

    def post(self, member: int, view_number: int, deliver: Deliver) -> None:
        """Deliver a message after those of the same view that were posted before it. Called by one thread only."""
        waiting = [each for each in self._queues.get(member, []) if not each.delivered.done()]
        before = [each for each in waiting if each.view_number == view_number][-AT_ONCE:]
        queued = _Queued(view_number)

        def carry() -> None:
            try:
                if before:
                    before[-1].on_line.wait()
                if len(before) == AT_ONCE:
                    wait_for([before[0].delivered])
                deliver(queued.on_line.set)
            finally:
                queued.on_line.set()

        queued.delivered = self._pool.submit(carry)
        self._queues[member] = [*waiting, queued]

    @property
    def idle(self) -> bool:
        """Whether everything that was posted is delivered, refused or cancelled."""
        return all(each.delivered.done() for queue in self._queues.values() for each in queue)

    def close(self) -> None:
        """Deliver nothing more; what is being delivered has been cancelled."""
        self._pool.shutdown(wait=True, cancel_futures=True)
