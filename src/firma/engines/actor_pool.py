"""The processes that a federation runs in on a Ray cluster: one a node, and another where one was lost."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from firma.engines.client_group import Array, Group, read_only
from firma.engines.federation import ClientData, Federation
from firma.engines.ray_cluster import Lost, answers, nodes, ray
from firma.errors import BadInput

Packed = list[tuple[Array, Array, Array, Array, float]]
_PATIENCE = 300  # seconds until a cluster that gives no cores is given up


def pack(data: Sequence[ClientData]) -> Packed:
    """Clients' data as plain arrays, which the processes of a node then share."""
    return [
        (each.inputs.numpy(), each.labels.numpy(), each.test_inputs.numpy(), each.test_labels.numpy(), each.scale)
        for each in data
    ]


class Host:
    """What runs in an actor: a group of clients, and nothing that the simulation does not have too."""

    _group: Group | None = None

    def begin(self, federation: Federation, numbers: Sequence[int], data: Packed) -> str:
        """Take in a group, in the place of an earlier one; says how it is trained."""
        if self._group is not None:
            self._group.close()
        self._group = None  # its memory is free before the next one asks for some
        unpacked = [
            ClientData(read_only(x), read_only(y), read_only(x_test), read_only(y_test), scale)
            for x, y, x_test, y_test, scale in data
        ]
        self._group = Group(federation, numbers, unpacked)
        return self._group.described

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the group."""
        return getattr(self._group, name)(*arguments)

    def several(self, name: str, *arguments: Any) -> Any:
        """The same where each part of the result goes another way: Ray takes a list of one for one result."""
        result = self.call(name, *arguments)
        return result[0] if len(result) == 1 else result

    def add(self, *parts: Array) -> Array:
        """The sum of float64 parts, in their order, as float32."""
        return np.asarray(sum(parts[1:], start=parts[0]), dtype=np.float32)

    def ready(self) -> int:
        """The process, when it has done all that it was asked before."""
        return os.getpid()


@dataclass
class Post:
    """Where an actor works and on how many cores; `claimed` are those that Ray keeps free for it."""

    node: str
    threads: int = 1
    claimed: int = 1
    actor: Any = None


class Crew:
    """One actor a node, or `count` in all, with a thread a core; `workers` limits the sum of threads."""

    def __init__(self, workers: int | None = None, count: int | None = None) -> None:
        self.posts = _layout(nodes(), workers, count)

    def __enter__(self) -> "Crew":
        self.mend()
        return self

    def __exit__(self, *_: object) -> None:
        for post in self.posts:
            if post.actor is not None:
                ray().kill(post.actor)

    def mend(self) -> list[int]:
        """Put a new actor in the place of every one that is gone, on another node if need be; says which."""
        gone = [index for index, post in enumerate(self.posts) if not _alive(post)]
        for index in gone:
            self._fill(self.posts[index])
        self._wait([self.posts[index] for index in gone])
        return gone

    def _fill(self, post: Post) -> None:
        there = nodes()
        if post.node not in there:
            held = {node: sum(other.node == node for other in self.posts) for node in there}
            post.node = min(there, key=lambda node: (held[node], -there[node]))
            # A node that has a group already has no cores left to claim: the two share them.
            post.claimed = 0 if held[post.node] else min(post.claimed, there[post.node])
        placed = ray().util.scheduling_strategies.NodeAffinitySchedulingStrategy(post.node, soft=False)
        options = {"num_cpus": post.claimed, "scheduling_strategy": placed, "max_restarts": 0}
        post.actor = ray().remote(Host).options(**options).remote()

    def _wait(self, posts: Sequence[Post]) -> None:
        """Until their processes run; a cluster whose cores are all taken is an error, not a wait for ever."""
        references = [post.actor.ready.remote() for post in posts]
        if references and ray().wait(references, num_returns=len(references), timeout=_PATIENCE)[1]:
            wanted = sum(post.claimed for post in posts)
            raise BadInput(
                f"engine = 'ray': the cluster gave no {wanted} cores within {_PATIENCE} s; free some, or ask for fewer "
                "with --workers"
            )


def _alive(post: Post) -> bool:
    """Whether the actor answers, which it does when it has done all that it was asked before."""
    if post.actor is None:
        return False
    try:
        answers(post.actor.ready.remote())
    except Lost:
        ray().kill(post.actor)
        return False
    return True


def _layout(there: dict[str, int], workers: int | None, count: int | None) -> list[Post]:
    """Posts on the nodes with most room, and threads over the posts, one each at least."""
    room = dict(there)
    total = min(workers or sum(room.values()), sum(room.values()))
    posts: list[Post] = []
    for _ in range(min(count or len(room), total)):
        node = max(room, key=lambda node: room[node] - 1e-6 * sum(post.node == node for post in posts))
        posts.append(Post(node))
        room[node] -= 1
    for _ in range(total - len(posts)):
        open_ = [post for post in posts if room[post.node]]
        if open_:
            post = min(open_, key=lambda post: post.threads)
            post.threads, post.claimed = post.threads + 1, post.claimed + 1
            room[post.node] -= 1
    return posts
