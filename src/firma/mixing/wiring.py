"""What a user says about connections: edges of a graph, the order of a ring, bandwidths; read and checked."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from firma.errors import BadInput
from firma.graphs import Edge, check_edges, read_edges
from firma.methods import GRAPHS, Method
from firma.mixing.bandwidth import Bandwidth, by_bandwidth, read_bandwidth

_LIST = re.compile(r"\s*\d+(\s*,\s*\d+)*\s*")


@dataclass(frozen=True, eq=False)
class Wiring:
    """Edges between clients by number, their order, and Mbit/s between them; all optional."""

    edges: tuple[Edge, ...] = ()
    order: tuple[int, ...] | None = None
    bandwidth: Bandwidth | None = None

    def check(self, clients: int, dropped: Iterable[int] = ()) -> None:
        """Refuse what does not fit so many clients; with `dropped` ones, numbers would mean other clients."""
        stated = [name for name, value in (("graph", self.edges), ("order", self.order)) if value]
        stated += ["bandwidth"] if self.bandwidth is not None else []
        if stated and (missing := list(dropped)):
            raise BadInput(
                f"{stated[0]}: names clients by number, but client {missing[0]} was left out because it has too few "
                "samples; set min_samples lower, or use fewer clients"
            )
        if self.edges:
            check_edges(self.edges, clients)
        if self.order is not None and sorted(self.order) != list(range(clients)):
            raise BadInput(
                f"order = {','.join(map(str, self.order))}: must name each of the clients 0 to {clients - 1} once"
            )
        if self.bandwidth is not None and len(self.bandwidth) != clients:
            raise BadInput(f"bandwidth: a table for {len(self.bandwidth)} clients, but there are {clients}")

    def ring_order(self, clients: int, row: Method) -> tuple[int, ...]:
        """The order of the clients for a row with order = 'given' or 'bandwidth'."""
        if row.order == "bandwidth":
            assert self.bandwidth is not None  # check_wiring saw to it
            return tuple(by_bandwidth(self.bandwidth))
        return self.order if self.order is not None else tuple(range(clients))


def read_wiring(
    graph: str | Path | tuple[Edge, ...] | None,
    order: str | Path | tuple[int, ...] | None,
    bandwidth: str | Path | None,
) -> Wiring:
    """The wiring from the options of a run: values, or files that hold them."""
    edges = read_edges(Path(graph)) if isinstance(graph, str | Path) else graph
    if edges is not None and not edges:
        raise BadInput("graph: it has no edges; a graph needs at least one")
    return Wiring(
        tuple((min(edge), max(edge)) for edge in edges or ()),
        read_order(order) if isinstance(order, str | Path) else order,
        read_bandwidth(Path(bandwidth)) if bandwidth is not None else None,
    )


def read_order(text: str | Path) -> tuple[int, ...]:
    """Client numbers as text, `3,1,0,2`, or from a file that holds them, separated by commas, spaces or lines."""
    if isinstance(text, str) and _LIST.fullmatch(text):
        return tuple(int(part) for part in text.split(","))
    try:
        words = Path(text).read_text(encoding="utf-8-sig").replace(",", " ").split()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadInput(
            f"order = {str(text)!r}: must be client numbers such as 3,1,0,2, or a file that holds them ({why})"
        ) from None
    bad = next((word for word in words if not (word.isascii() and word.isdigit())), None)
    if bad is not None or not words:
        raise BadInput(
            f"order = {str(text)!r}: {bad!r} is no client number" if bad else f"order = {str(text)!r}: empty"
        )
    return tuple(int(word) for word in words)


def is_ordered(row: Method) -> bool:
    """Whether the order of the clients changes what a row computes or whom it sends to."""
    return row.topology in ("ring", "all-reduce", *GRAPHS)


def check_wiring(wiring: Wiring, rows: Iterable[Method]) -> None:
    """Refuse methods that lack what they need, and options that no method uses."""
    chosen = list(rows)
    for row in chosen:
        if row.topology == "edges" and not wiring.edges:
            raise BadInput(f"method {row.name!r}: topology = 'edges' requires --graph FILE")
        if row.order == "bandwidth" and wiring.bandwidth is None:
            raise BadInput(f"method {row.name!r}: order = 'bandwidth' requires --bandwidth FILE")
        if row.order != "given" and row.topology != "star" and wiring.order is not None:
            raise BadInput(
                f"--order cannot be combined with method {row.name!r}, which has order = {row.order!r}; change that to "
                "order=given"
            )
    if wiring.edges and not any(row.topology == "edges" for row in chosen):
        raise BadInput("--graph requires a method with topology = 'edges', such as fibfl:topology=edges,…")
    if wiring.bandwidth is not None and not any(row.order == "bandwidth" for row in chosen):
        raise BadInput("--bandwidth requires a method with order = 'bandwidth', such as fibfl:order=bandwidth")
    if wiring.order is not None and not any(is_ordered(row) for row in chosen):
        raise BadInput(
            f"--order requires a method on a ring, a graph or an all-reduce; method {chosen[0].name!r} has topology = "
            f"{chosen[0].topology!r}, which has no order"
        )
