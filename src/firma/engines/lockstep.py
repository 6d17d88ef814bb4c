"""Drives peers in lock step in one process: every message is really passed, and can be recorded."""

from collections.abc import Callable, Mapping

from torch import Tensor

from firma.protocol import Exchange, Message, Peer

Record = Callable[[int, int, tuple[int, int], Message], None]
Carry = Callable[[Message], Message]


def drive(peers: Mapping[int, Peer], record: Record, carry: Carry = lambda message: message) -> dict[int, Tensor]:
    """Run every peer to its end and return what each returned; a deadlock is an error, not a wait.

    `carry` is what the way does to a message, such as rounding its parameters.
    """
    results: dict[int, Tensor] = {}
    waiting: dict[int, Exchange] = {}
    boxes: dict[tuple[int, int, tuple[int, int]], Message] = {}

    def advance(number: int, arrived: dict[int, Message] | None) -> None:
        try:
            exchange = next(peers[number]) if arrived is None else peers[number].send(arrived)
        except StopIteration as stop:
            results[number] = stop.value
            return
        message = carry(exchange.message) if exchange.to else exchange.message
        for receiver in exchange.to:
            boxes[number, receiver, exchange.tag] = message
            record(number, receiver, exchange.tag, message)
        waiting[number] = exchange

    for number in peers:
        advance(number, None)
    while waiting:
        ready = [n for n, e in waiting.items() if all((sender, n, e.tag) in boxes for sender in e.wait)]
        if not ready:
            raise RuntimeError(f"peers {sorted(waiting)} wait for messages that nobody will send")
        for number in ready:
            exchange = waiting.pop(number)
            advance(number, {sender: boxes.pop((sender, number, exchange.tag)) for sender in exchange.wait})
    return results
