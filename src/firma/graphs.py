"""Graphs along which members exchange: who receives from whom, by their places in an order, or by edges of the user's.

All graphs but the two exponential ones are undirected. The exponential ones are directed, and every place has as many
senders as receivers, so that the same weights keep the mean of all members.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, assert_never

from firma.errors import BadInput
from firma.seeds import generator

GraphTopology = Literal["ring", "complete", "torus", "exponential", "one-peer-exponential", "regular", "edges"]
DIRECTED = ("exponential", "one-peer-exponential")
Edge = tuple[int, int]
Links = Mapping[int, tuple[int, ...]]  # by member, other members in ascending order
_SWITCHES = 10  # per edge, that turn a regular graph into a random one


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph on any number of members; `links` says what it is on those that take part."""

    topology: GraphTopology
    degree: int = 0  # of a random regular graph
    seed: int = 0  # by which it is drawn
    edges: tuple[Edge, ...] = ()  # of the user's own graph, between clients by number


def senders(graph: Graph, order: Sequence[int], turn: int = 0) -> Links:
    """Whom each member of `order` receives from in pass number `turn`, counted over all rounds."""
    return _links(graph, tuple(order), turn % period(graph, len(order)))[0]


def receivers(graph: Graph, order: Sequence[int], turn: int = 0) -> Links:
    """Whom each member of `order` sends to in pass number `turn`; on an undirected graph, its senders."""
    return _links(graph, tuple(order), turn % period(graph, len(order)))[1]


def period(graph: Graph, members: int) -> int:
    """After how many passes the links are the same again: ⌈log₂ n⌉ with one peer at a time, else 1."""
    return _digits(members) if graph.topology == "one-peer-exponential" else 1


def every_sender(graph: Graph, order: Sequence[int], turns: Iterable[int]) -> Links:
    """Whom each member receives from in any of these passes."""
    found: dict[int, set[int]] = {member: set() for member in order}
    for turn in sorted({turn % period(graph, len(order)) for turn in turns}):
        for member, others in senders(graph, order, turn).items():
            found[member].update(others)
    return {member: tuple(sorted(others)) for member, others in found.items()}


def degree(graph: Graph, order: Sequence[int]) -> int:
    """The most members that one receives from in a pass."""
    return max(len(found) for found in senders(graph, order).values())


def reach(graph: Graph, members: int) -> int:
    """Passes after which everybody has heard of everybody: the diameter, and at least 1.

    With one peer at a time, ⌈log₂ n⌉ passes; for n = 2^k they give the exact mean. On a graph of the user's own, the
    diameter of all of it.
    """
    match graph.topology:
        case "complete":
            return 1
        case "exponential" | "one-peer-exponential":
            return _digits(members) if graph.topology == "one-peer-exponential" else _exponential_reach(members)
        case "torus":
            rows = torus_rows(members)
            return max(1, rows // 2 + members // rows // 2)
        case "ring":
            return max(1, members // 2)
        case "edges":
            return _diameter(graph, 1 + max((max(edge) for edge in graph.edges), default=0))
        case "regular":
            return _diameter(graph, members)
        case other:
            assert_never(other)


def furthest_lead(graph: Graph, members: int) -> int:
    """By how many passes a sender can be ahead of its receiver: the hops from the receiver back to the sender.

    1 on an undirected graph; with exponential links, a difference of places has at most ⌈log₂ n⌉ binary digits.
    """
    return _digits(members) if graph.topology in DIRECTED else 1


def torus_rows(members: int) -> int:
    """Rows of the torus: the largest divisor of n that is at most √n; for a prime n one row, which is a ring."""
    return next(rows for rows in range(math.isqrt(members), 0, -1) if members % rows == 0)


def check_graph(graph: Graph, members: int, clients: int | None = None) -> None:
    """Refuse a graph that does not exist for so many members, which may be those of the `clients` that take part."""
    there = f"{members} clients" if clients in (None, members) else f"the {members} of {clients} clients in a round"
    if graph.topology == "regular" and members > 1:
        if not 0 < graph.degree < members:
            raise BadInput(
                f"degree = {graph.degree}: topology = 'regular' with {there} requires a degree from 1 to {members - 1}"
            )
        if graph.degree * members % 2:
            raise BadInput(
                f"degree = {graph.degree}: no graph of {there} has this degree everywhere, for degree times "
                "clients must be even; change degree or clients"
            )
        if graph.degree == 1 and members > 2:
            raise BadInput("degree = 1: the graph would fall into pairs; use 2 or more")
    if graph.topology == "edges":
        check_edges(graph.edges, members)


def check_edges(edges: Sequence[Edge], clients: int) -> None:
    """Refuse edges that are no connected graph of the clients 0 … N-1."""
    if not edges and clients > 1:
        raise BadInput("topology = 'edges' requires the edges of a graph; pass --graph FILE")
    for one, other in edges:
        for client in (one, other):
            if not 0 <= client < clients:
                raise BadInput(
                    f"graph: edge {one} {other}: there is no client {client}; clients are 0 to {clients - 1}"
                )
        if one == other:
            raise BadInput(f"graph: edge {one} {other} joins a client to itself; remove it")
    apart = set(range(clients)) - _component(_adjacent(tuple(edges)), 0)
    if apart:
        some = ", ".join(map(str, sorted(apart)[:5])) + (", …" if len(apart) > 5 else "")
        raise BadInput(f"graph: not connected: there is no path from client 0 to {some}; add edges")


def read_edges(path: Path) -> tuple[Edge, ...]:
    """Edges from a text file, one per line: two client numbers, separated by spaces or a comma.

    Empty lines and lines that begin with # are skipped, and so is a first line without numbers, the title of a CSV
    table. An edge holds in both directions; one that is named twice counts once.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadInput(f"graph = {str(path)!r}: cannot be read ({why})") from None
    found: dict[Edge, None] = {}
    stated = [
        (at, line) for at, line in enumerate(lines, start=1) if line.strip() and not line.lstrip().startswith("#")
    ]
    for place, (at, line) in enumerate(stated):
        words = line.replace(",", " ").replace(";", " ").split()
        if place == 0 and not any(character.isdigit() for character in line):
            continue
        if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
            raise BadInput(
                f"graph = {str(path)!r}: line {at} is {line.strip()!r}; must be two client numbers, such as 0 3"
            )
        one, other = sorted(map(int, words))
        found[one, other] = None
    return tuple(sorted(found))


@lru_cache(maxsize=256)
def _links(graph: Graph, order: tuple[int, ...], turn: int) -> tuple[Links, Links]:
    """Senders and receivers of every member."""
    if graph.topology == "edges":
        here, adjacent = set(order), _adjacent(graph.edges)
        found = {
            member: tuple(other for other in adjacent.get(member, ()) if other in here) for member in sorted(order)
        }
        return found, found
    places = _places(graph, len(order), turn)
    backward = {order[at]: tuple(sorted(order[place] for place in each)) for at, each in enumerate(places)}
    if graph.topology not in DIRECTED:
        return backward, backward
    forward: dict[int, list[int]] = {member: [] for member in order}
    for member, heard in backward.items():
        for sender in heard:
            forward[sender].append(member)
    return backward, {member: tuple(sorted(told)) for member, told in forward.items()}


def _places(graph: Graph, members: int, turn: int) -> tuple[frozenset[int], ...]:
    """For each place, the places that it receives from."""
    everywhere = range(members)
    match graph.topology:
        case "complete":
            found = [frozenset(everywhere) for _ in everywhere]
        case "ring":
            found = [frozenset(((at - 1) % members, (at + 1) % members)) for at in everywhere]
        case "torus":
            columns = members // torus_rows(members)
            found = [frozenset(_around(at, members, columns)) for at in everywhere]
        case "exponential":
            offsets = [2**digit for digit in range(_digits(members))]
            found = [frozenset((at - offset) % members for offset in offsets) for at in everywhere]
        case "one-peer-exponential":
            found = [frozenset(((at - 2**turn) % members,)) for at in everywhere]
        case "regular":
            return _regular(members, graph.degree, graph.seed)
        case _:
            raise AssertionError(graph.topology)
    return tuple(each - {at} for at, each in enumerate(found))


def _around(at: int, members: int, columns: int) -> Iterable[int]:
    """The four cells next to a cell of a torus, which may coincide."""
    row, column = divmod(at, columns)
    yield (at - columns) % members
    yield (at + columns) % members
    yield row * columns + (column - 1) % columns
    yield row * columns + (column + 1) % columns


def _digits(members: int) -> int:
    """⌈log₂ n⌉, and at least 1: the offsets 1, 2, 4, … that are smaller than n."""
    return max(1, (members - 1).bit_length())


@lru_cache(maxsize=64)
def _exponential_reach(members: int) -> int:
    """The most binary digits 1 that a difference of places has, where going round more than once may save some."""
    far, seen, hops = {0}, {0}, 0
    while len(seen) < members:
        far = {(at + 2**digit) % members for at in far for digit in range(_digits(members))} - seen
        seen |= far
        hops += 1
    return max(1, hops)


@lru_cache(maxsize=64)
def _diameter(graph: Graph, members: int) -> int:
    order = tuple(range(members))
    links = senders(graph, order)
    longest = 1
    for start in order:
        seen, far, hops = {start}, {start}, 0
        while far:
            far = {other for at in far for other in links[at]} - seen
            seen |= far
            hops += bool(far)
        longest = max(longest, hops)
    return longest


@lru_cache(maxsize=16)
def _adjacent(edges: tuple[Edge, ...]) -> dict[int, tuple[int, ...]]:
    found: dict[int, set[int]] = {}
    for one, other in edges:
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set()).add(one)
    return {member: tuple(sorted(others)) for member, others in found.items()}


def _component(adjacent: Mapping[int, Iterable[int]], start: int) -> set[int]:
    """Everybody that can be reached from one."""
    seen, far = {start}, {start}
    while far:
        far = {other for at in far for other in adjacent.get(at, ())} - seen
        seen |= far
    return seen


@lru_cache(maxsize=16)
def _regular(members: int, wanted: int, seed: int) -> tuple[frozenset[int], ...]:
    """A connected random graph in which every place has `wanted` neighbours.

    A circulant one is shuffled by switches, a-b and c-d to a-d and c-b, which keep all degrees; more switches follow
    until it is connected. With fewer places than the degree needs, as when members of a run have left, it is complete.
    """
    wanted = min(wanted, members - 1)
    offsets = [*range(1, wanted // 2 + 1), *([members // 2] if wanted % 2 else [])]
    edges = sorted({tuple(sorted((at, (at + offset) % members))) for at in range(members) for offset in offsets})
    draw = generator(seed, "graph", members, wanted)
    present = set(edges)
    while edges:
        drawn = draw.integers(0, (len(edges), len(edges), 2), (_SWITCHES * len(edges), 3))
        for first, second, flip in drawn.tolist():
            (a, b), (c, d) = edges[first], edges[second]
            if flip:
                c, d = d, c
            if len({a, b, c, d}) < 4:
                continue
            new_one, new_other = tuple(sorted((a, d))), tuple(sorted((c, b)))
            if new_one in present or new_other in present:
                continue
            present -= {edges[first], edges[second]}
            present |= {new_one, new_other}
            edges[first], edges[second] = new_one, new_other
        adjacent: list[set[int]] = [set() for _ in range(members)]
        for a, b in edges:
            adjacent[a].add(b)
            adjacent[b].add(a)
        if len(_component(dict(enumerate(adjacent)), 0)) == members:
            return tuple(frozenset(each) for each in adjacent)
    return tuple(frozenset() for _ in range(members))
