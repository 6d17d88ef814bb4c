"""An audit of what every client received: head privacy and server-freedom, the paper's definitions A and B."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firma.encoding import size
from firma.models.split_model import Layout
from firma.protocol import SERVER, Message


@dataclass(frozen=True, slots=True)
class Receipt:
    """One message as its receiver saw it; tensors are read off the elements that arrived, not off a label."""

    round: int
    step: int
    sender: int
    receiver: int
    tensors: tuple[str, ...]
    size: int
    numbers: tuple[str, ...]


@dataclass
class Audit:
    """Receipts of a run, in order, with the verdicts that follow from them.

    `neighbours` are those on the ring of all clients. In a round in which only some take part, the ring closes up, and
    in one on another graph there are other links: `neighbours_in` has whom each may receive from in that round.
    `layout` is that of what is being sent, numbered from 0.
    """

    neighbours: Mapping[int, tuple[int, ...]]
    layout: Layout = field(default_factory=lambda: Layout((), 0, 0))
    receipts: list[Receipt] = field(default_factory=list)
    neighbours_in: dict[int, Mapping[int, tuple[int, ...]]] = field(default_factory=dict)
    on_graph: bool = False  # some round was not on a ring

    def record(self, sender: int, receiver: int, tag: tuple[int, int], message: Message) -> None:
        """Note one delivery."""
        start, stop = message.state.start, message.state.start + message.state.values.numel()
        tensors = self.layout.names(start, stop)
        told = (("accuracy", message.accuracy), ("weight", message.weight))
        numbers = tuple(name for name, value in told if value is not None)
        content = sum(size(message.wire, count) for count in self.layout.counts(start, stop)) + 8 * len(numbers)
        content += sum(map(len, message.digests))
        numbers += ("digests",) if message.digests else ()
        self.receipts.append(Receipt(*tag, sender, receiver, tensors, content, numbers))

    @property
    def heads(self) -> int:
        """Messages in which any element of a head arrived."""
        return sum(any(name.startswith("head") for name in receipt.tensors) for receipt in self.receipts)

    @property
    def strangers(self) -> int:
        """Messages from or to anyone but a neighbour on the ring, or on the round's graph; a server is none.

        Digests do not count: they say nothing about parameters, and members must not get them from neighbours.
        """
        return sum(self._strange(receipt) for receipt in self.receipts)

    def _strange(self, receipt: Receipt) -> bool:
        if SERVER in (receipt.sender, receipt.receiver):
            return True
        if receipt.numbers == ("digests",) and not receipt.tensors:
            return False
        return receipt.sender not in self.neighbours_in.get(receipt.round, self.neighbours).get(receipt.receiver, ())

    @property
    def most_senders(self) -> int:
        """The largest number of different clients that one client received parameters from, in all rounds together."""
        senders: dict[int, set[int]] = {}
        for receipt in self.receipts:
            if SERVER not in (receipt.sender, receipt.receiver):
                senders.setdefault(receipt.receiver, set()).add(receipt.sender)
        return max((len(found) for found in senders.values()), default=0)

    @property
    def degree(self) -> int:
        """The most neighbours that a client could receive from in one round: 2 on a ring."""
        rounds = [*self.neighbours_in.values()] or [self.neighbours]
        return max((len({*found} - {client}) for each in rounds for client, found in each.items()), default=0)

    def summary(self) -> dict[str, Any]:
        """The verdicts and totals, ready for JSON.

        On graphs also the `degree`, where the definition says two neighbours; there and with client sampling also
        `most_senders`, which can exceed it.
        """
        sampled = {"most_senders": self.most_senders} if self.neighbours_in else {}
        graph = {"degree": self.degree} if self.on_graph else {}
        return (
            graph
            | sampled
            | {
                "messages": len(self.receipts),
                "bytes": sum(receipt.size for receipt in self.receipts),
                "tensors": sorted({name for receipt in self.receipts for name in receipt.tensors}),
                "numbers": sorted({name for receipt in self.receipts for name in receipt.numbers}),
                "messages_with_head": self.heads,
                "messages_beyond_neighbours": self.strangers,
                "head_private": self.heads == 0,
                "server_free": self.strangers == 0,
            }
        )
