"""A round's mixing by real messages within one process: messages are encoded, delivered in lock step and recorded."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from firma.encoding import pack, unpack
from firma.errors import BadInput
from firma.models.split_model import Layout
from firma.protocol import Exchange, Exchanges, Message

Record = Callable[[int, int, tuple[int, int], Message], None]
Transmit = Callable[[Message], Message]


def transmitted(message: Message, layout: Layout) -> Message:
    """The message as it arrives, each tensor encoded and decoded by itself; float32 arrives as it left."""
    if message.wire == "float32":
        return message
    values, start = message.state.values, message.state.start
    counts = layout.counts(start, start + values.numel())
    stretches = np.split(values.detach().cpu().numpy(), np.cumsum(counts)[:-1])
    try:
        read = [unpack(message.wire, pack(message.wire, each), len(each)) for each in stretches]
    except ValueError as error:
        raise BadInput(
            f"wire = {message.wire!r}: a client's parameters contain {error}; use a lower learning rate"
        ) from None
    arrived = torch.from_numpy(np.concatenate(read)) if read else values.cpu()
    return replace(message, state=replace(message.state, values=arrived.to(values)))


def drive(
    members: Mapping[int, Exchanges], record: Record, transmit: Transmit = lambda message: message
) -> dict[int, Tensor]:
    """Run every member's exchanges to the end and return what each returned; a deadlock is an error, not a wait.

    `transmit` is what the line does to a message, such as rounding its parameters.
    """
    results: dict[int, Tensor] = {}
    waiting: dict[int, Exchange] = {}
    boxes: dict[tuple[int, int, tuple[int, int]], Message] = {}

    def advance(number: int, arrived: dict[int, Message] | None) -> None:
        try:
            exchange = next(members[number]) if arrived is None else members[number].send(arrived)
        except StopIteration as stop:
            results[number] = stop.value
            return
        message = transmit(exchange.message) if exchange.to else exchange.message
        for receiver in exchange.to:
            boxes[number, receiver, exchange.tag] = message
            record(number, receiver, exchange.tag, message)
        waiting[number] = exchange

    for number in members:
        advance(number, None)
    while waiting:
        ready = [n for n, e in waiting.items() if all((sender, n, e.tag) in boxes for sender in e.wait)]
        if not ready:
            raise RuntimeError(f"members {sorted(waiting)} wait for messages that nobody will send")
        for number in ready:
            exchange = waiting.pop(number)
            advance(number, {sender: boxes.pop((sender, number, exchange.tag)) for sender in exchange.wait})
    return results
