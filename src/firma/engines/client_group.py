"""Clients that share a process: all of them in the simulation, one node's part of them on a cluster."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firma.algorithms.catalogue import check_start
from firma.attacks import TRAINED, believes_itself, lie
from firma.engines.engine import Federation
from firma.engines.server import Server, server_of
from firma.engines.worker_pool import WorkerPool
from firma.engines.worker_processes import shared_empty
from firma.mixing.combine import Gossip, combined, common
from firma.mixing.kind import kind_of
from firma.mixing.matrix_blocks import Blocks, apply
from firma.schedule import RoundPlan, phases_of_a_run
from firma.seeds import generator
from firma.training.algorithm import START, is_plain, overrides
from firma.training.backend import Backend, after_mixing, gate_accuracy, metrics, seeded, train_round
from firma.training.derived_head import derived_head
from firma.training.local_step import Client, ClientData, Job, Trainer, new_client, private_buffers, tested
from firma.training.personal import personalise
from firma.training.preflight import prepare

Array = NDArray[Any]
Rows = slice | list[int]  # of a group's stack


class GroupState(TypedDict):
    """All that clients keep between rounds: (n, P) parameters, and each client's memory as named arrays.

    `server` is what a star's server keeps, if there is one and it is with this group; else empty.
    """

    numbers: list[int]
    parameters: Array
    memory: list[dict[str, Array]]
    server: dict[str, Array]


class ClientGroup:
    """Clients `numbers`, whose parameters are the rows of the (n, P) `stack`, in the layout of the backend.

    Vectors that are mixed with the parameters, if the algorithm has any, lie behind them in the rows of `whole`.

    `data` and `federation.models` are those of these clients alone, in the same order.
    """

    def __init__(self, federation: Federation, numbers: Sequence[int], data: Sequence[ClientData]) -> None:
        check_start(federation.method, federation.hyper)
        self.federation, self.numbers = federation, list(numbers)
        models = federation.models
        self.layout = models[0].layout()
        self._recipe = federation.recipe
        self.backend = backend_for(federation, data)
        self.workers = WorkerPool(self.backend, len(data), federation.workers)
        starts = torch.stack([self.backend.inward(model.flat()) for model in models])
        extra = sum(self._recipe.mixed.values())
        self.whole = _on_lines(starts, len(data), federation.device, self.workers.forks, extra)
        self.stack = self.whole[:, : self.layout.size]
        if federation.method.head != "learnt":
            self._derive_heads(data)
        self.clients = [
            new_client(number, data[row], self.whole[row], models[row % len(models)], self._recipe)
            for row, number in enumerate(self.numbers)
        ]
        for client in self.clients:
            if federation.attack is not None and federation.attack.lies(client.number):
                client.memory[TRAINED] = client.parameters.clone()
        if self.workers.forks:
            self.workers.fork(self, self.clients, self._recipe.mixed)
        self._tested: dict[int, dict[str, float]] = {}  # by client, as of the last test
        self._tested_in: dict[int, int] = {}  # by client, the round of that test
        self.server: Server | None = server_of(federation, self._recipe)
        self._served = False  # on a cluster, the first group's server is used, and saved

    @property
    def described(self) -> str:
        """How clients are trained and why, for people."""
        said = self.backend.described(self.workers.count)
        return f"{said}; one at a time because {self.workers.obstacle}" if self.workers.obstacle else said

    @property
    def mixed(self) -> Mapping[str, int]:
        """Vectors that are mixed with the parameters: names and sizes."""
        return self._recipe.mixed

    @property
    def sizes(self) -> list[int]:
        """Training samples of every client; a client that is trained by others may say so only when it has trained."""
        return [len(client.data.labels) for client in self.clients]

    def sizes_in(self, plan: RoundPlan) -> list[int]:
        """Training samples of every client in the planned round."""
        run = self.federation
        return self.sizes if run.drift is None else [run.drift.size(number, plan.number) for number in self.numbers]

    def _derive_heads(self, data: Sequence[ClientData]) -> None:
        for row, own in enumerate(data):
            self._derive_head(row, own.labels)

    def _derive_head(self, row: int, labels: Tensor) -> None:
        run = self.federation
        model = run.models[row % len(run.models)]
        flat = self.backend.outward(self.stack[row])
        head = derived_head(model, run.method.head, run.hyper.head_bias, labels, run.seed)
        flat[self.layout.span("head")] = head.to(flat)
        self.stack[row] = self.backend.inward(flat)

    def _in_round(self, client: Client, plan: RoundPlan, train: bool, test: bool) -> Client:
        """The client with its data of the planned round, where data change; inputs only of what is asked for."""
        drift = self.federation.drift
        if drift is None:
            return client
        data = drift.client(client.number, plan.number, train, test)
        return replace(client, data=data.to(self.federation.device))

    def spans(self, plan: RoundPlan) -> tuple[slice, ...]:
        """The columns of `whole` that the plan shares."""
        found = self.layout.shared(plan.part)
        size = self.layout.size
        if self.whole.shape[1] > size:
            found = (*found, slice(size, self.whole.shape[1]))
        if len(found) == 2 and found[0].stop == found[1].start:
            return (slice(found[0].start, found[1].stop),)
        return found

    def shared(self, plan: RoundPlan) -> Tensor:
        """(n, …) what the plan shares: a view where it lies in one place, else a copy, see `put`."""
        spans = self.spans(plan)
        return self.whole[:, spans[0]] if len(spans) == 1 else torch.cat([self.whole[:, each] for each in spans], 1)

    def put(self, plan: RoundPlan, shared: Tensor) -> None:
        """Write what `shared` returned, after it was changed, to where it belongs."""
        spans, at = self.spans(plan), 0
        if len(spans) == 1:
            return  # it is a view
        for each in spans:
            self.whole[:, each] = shared[:, at : at + each.stop - each.start]
            at += each.stop - each.start

    def training(self, plan: RoundPlan) -> Rows:
        """Rows of the clients that take part in the round."""
        if plan.participants is None:
            return slice(None)
        drawn = set(plan.participants)
        return [row for row, number in enumerate(self.numbers) if number in drawn]

    def changed(self, plan: RoundPlan) -> Rows:
        """Rows of the clients that the round may change: with a server all, because the model is the server's."""
        return slice(None) if kind_of(plan.mixing).NEEDS_SERVER else self.training(plan)

    def train(self, plan: RoundPlan) -> dict[int, float]:
        """Local training of those who take part; by client, their training accuracies where a gate asks for them."""
        clients = self._clients(self.training(plan))
        accuracies = self.workers.each(clients, self.train_one, plan)
        return dict(zip((client.number for client in clients), accuracies, strict=True))

    def train_one(self, trainer: Trainer, client: Client, plan: RoundPlan) -> float:
        """One client's local training, on its data of the round; a head that is derived from them is derived anew."""
        client = self._in_round(client, plan, train=True, test=False)
        if self.federation.drift is not None and self.federation.method.head != "learnt":
            self._derive_head(self.numbers.index(client.number), client.data.labels)
        attack = self.federation.attack
        lies = attack is not None and attack.lies(client.number)
        start = self.backend.outward(client.parameters).clone() if lies else None
        accuracy = train_round(self.backend, trainer, client, self._job(plan), plan, self.federation.seed)
        return accuracy if start is None else self._lie(trainer, client, plan, start)

    def _lie(self, trainer: Trainer, client: Client, plan: RoundPlan, start: Tensor) -> float:
        """Put what a dishonest client sends in the place of its trained parameters; returns the accuracy it claims."""
        run, attack, sent = self.federation, self.federation.attack, self.backend.outward(client.parameters).clone()
        assert attack is not None  # it lies
        if self._recipe.algorithm.sends_differences:
            start[self.layout.buffers :] = 0  # what the client sends is its update
        for number, span in enumerate(self.layout.shared(plan.part)):
            draw = generator(run.seed, "attack", client.number, plan.number, number)
            sent[span] = lie(attack.kind, sent[span], start[span], draw)
        client.memory[TRAINED].copy_(client.parameters)
        client.parameters.copy_(self.backend.inward(sent))
        if plan.gate is None or attack.kind == "lying-accuracy":
            return 1.0
        with seeded(self.backend, run.seed, "evaluation", client.number):
            return gate_accuracy(self.backend, trainer, client, run.task)

    def before_mixing(self, plan: RoundPlan) -> None:
        """Remember what clients that took no part, but will be given the server's model, had before."""
        if not is_plain(self._recipe.algorithm) and plan.participants is not None:
            trained = {client.number for client in self._clients(self.training(plan))}
            for client in self._clients(self.changed(plan)):
                if client.number not in trained:
                    client.memory[START].copy_(client.parameters)

    def after_mixing(self, plan: RoundPlan) -> None:
        """The algorithm's last hook, for every client that the round changed; attackers forget their own lies."""
        for client in self._clients(self.training(plan)):
            if TRAINED in client.memory and believes_itself(plan):
                client.parameters.copy_(client.memory[TRAINED])
        if overrides(self._recipe.algorithm, "after_mixing"):
            for client in self._clients(self.changed(plan)):
                now = self._in_round(client, plan, train=False, test=False)
                after_mixing(self.backend, now, self._job(plan), plan)

    def _job(self, plan: RoundPlan) -> Job:
        return Job(
            self._recipe,
            plan.phases,
            self.federation.hyper.batch,
            clients=self.federation.clients,
            seed=self.federation.seed,
        )

    def test(self, plan: RoundPlan) -> dict[str, NDArray[np.float64]]:
        """(n,) every metric after the planned round; a client that the round did not change is not tested again."""
        clients = self._to_test(plan)
        fresh = {client.number for client in clients}
        # After a restart, the others have the personal models that they had before, and need their metrics only.
        others = [each for each in self.clients if each.number not in fresh and each.number not in self._tested]
        for some, work in ((clients, self.test_one), (others, self.score_one)):
            found = self.workers.each(some, work, plan)
            self._tested |= zip((client.number for client in some), found, strict=True)
            self._tested_in |= dict.fromkeys((client.number for client in some), plan.number)
        by_client = [self._tested[number] for number in self.numbers]
        return {name: np.array([each.get(name, np.nan) for each in by_client]) for name in by_client[0]}

    def _to_test(self, plan: RoundPlan) -> Sequence[Client]:
        """The clients whose model or data the round may have changed."""
        drift, before = self.federation.drift, plan.number - 1
        changed = self._clients(self.changed(plan))
        if drift is None:
            return changed
        known = {client.number for client in changed}
        known |= {n for n in self.numbers if not drift.same(n, self._tested_in.get(n, before), plan.number)}
        return [client for client in self.clients if client.number in known]

    def test_one(self, trainer: Trainer, client: Client, plan: RoundPlan) -> dict[str, float]:
        """A client's metrics after the round, with its personal model made anew, if it has one."""
        if self._recipe.personal is not None:
            now = self._in_round(client, plan, train=True, test=False)
            personalise(self.backend, trainer, now, self._job(plan), plan, self.federation.seed)
        return self.score_one(trainer, client, plan)

    def score_one(self, trainer: Trainer, client: Client, plan: RoundPlan) -> dict[str, float]:
        """Every metric of the task on one client's test data and, where asked for, on its training data."""
        task = self.federation.task
        client = tested(self._in_round(client, plan, task.train_curves, test=True))
        with seeded(self.backend, self.federation.seed, "evaluation", client.number):
            found = metrics(self.backend, trainer, client, task, test=True)
            if not task.train_curves:
                return found
            seen = metrics(self.backend, trainer, client, task, test=False)
        return found | {f"train_{name}": seen[name] for name in ("loss", task.main)}

    def buffers(self) -> list[dict[str, Array]]:
        """The private buffers of every client's model, such as running means, by name."""
        held = (private_buffers(tested(client)) for client in self.clients)
        return [{name: _array(kept) for name, kept in each.items()} for each in held]

    def _clients(self, rows: Rows) -> Sequence[Client]:
        return self.clients[rows] if isinstance(rows, slice) else [self.clients[row] for row in rows]

    def rows(self, plan: RoundPlan, *wanted: Sequence[int]) -> list[Array]:
        """Copies of what some clients share, (clients, …) for each group that asked."""
        shared, row = self.shared(plan), {number: row for row, number in enumerate(self.numbers)}
        return [shared[[row[number] for number in numbers]].numpy() for numbers in wanted]

    def mix(self, plan: RoundPlan, blocks: Blocks, owners: Sequence[Sequence[int]] = (), *remote: Array) -> None:
        """This group's part of mixing by blocks; `remote` are rows of clients elsewhere, `owners` their numbers."""
        shared = self.shared(plan)
        apply(blocks, shared, self.numbers, _by_number(owners, remote), self.workers.spread)
        self.put(plan, shared)

    def combine(self, plan: RoundPlan, gossip: Gossip, owners: Sequence[Sequence[int]] = (), *remote: Array) -> None:
        """This group's part of one pass that is not linear; `remote` are rows of clients elsewhere, as in `mix`."""
        shared = self.shared(plan)
        before = _by_number(owners, remote) | dict(zip(self.numbers, shared.clone(), strict=True))

        def work(row: int) -> None:
            number = self.numbers[row]
            if number in gossip.reads:
                reads = gossip.reads[number]
                shared[row] = combined(plan, before[number], [before[other] for other in reads.others], reads)

        self.workers.spread(work, range(len(self.numbers)))
        self.put(plan, shared)

    def combine_all(
        self, plan: RoundPlan, clients: Sequence[int], owners: Sequence[Sequence[int]] = (), *remote: Array
    ) -> None:
        """Every client that the round changes takes over the combination of all of `clients`."""
        shared = self.shared(plan)
        rows = _by_number(owners, remote) | dict(zip(self.numbers, shared, strict=True))
        shared[self.changed(plan)] = common(plan, [rows[client] for client in clients])
        self.put(plan, shared)

    def total(self, plan: RoundPlan, weights: Mapping[int, float], pieces: int) -> list[Array]:
        """This group's part of a weighted sum over the clients in `weights`, (…) in float64, cut in pieces.

        In float64, so that rounding it to float32 in the end gives the same however clients are grouped.
        """
        shared = self.shared(plan)
        total = torch.zeros(shared.shape[1], dtype=torch.float64)
        for number, row in zip(self.numbers, shared, strict=True):
            if number in weights:
                total.add_(row, alpha=weights[number])
        return [piece.numpy() for piece in total.tensor_split(pieces)]

    def adopt(self, plan: RoundPlan, *pieces: Array) -> None:
        """Every client that the round changes takes over the average, given in pieces."""
        shared = self.shared(plan)
        shared[self.changed(plan)] = torch.cat([read_only(piece) for piece in pieces])
        self.put(plan, shared)

    def outward_shared(self, plan: RoundPlan) -> Tensor:
        """(n, q) what clients send, a copy in torch's layout: shared parameters, then the vectors mixed with them."""
        size = self.layout.size
        whole = torch.cat([self.backend.outward(self.stack), self.whole[:, size:]], 1)
        return torch.cat([whole[:, each] for each in self.spans(plan)], 1)

    def put_outward(self, plan: RoundPlan, shared: Tensor) -> None:
        """The inverse: write (n, q), or (q,) for all clients, to where it belongs."""
        size, at = self.layout.size, 0
        whole = torch.cat([self.backend.outward(self.stack), self.whole[:, size:]], 1)
        for each in self.spans(plan):
            whole[:, each], at = shared[..., at : at + each.stop - each.start], at + each.stop - each.start
        self.stack.copy_(self.backend.inward(whole[:, :size]))
        self.whole[:, size:] = whole[:, size:]

    def sent(self, plan: RoundPlan, numbers: Sequence[int]) -> Array:
        """(clients, q) what some clients send to a server on another node."""
        row = {number: row for row, number in enumerate(self.numbers)}
        return _array(self.outward_shared(plan)[[row[number] for number in numbers]])

    def serve(
        self, plan: RoundPlan, weights: Mapping[int, float], owners: Sequence[Sequence[int]] = (), *remote: Array
    ) -> Array:
        """(q,) what the server sends, given clients' weights; `remote` is what `owners` on other nodes have sent."""
        assert self.server is not None
        own = self.outward_shared(plan)
        found = {number: own[row] for row, number in enumerate(self.numbers) if number in weights}
        for numbers, rows in zip(owners, remote, strict=True):
            found |= zip(numbers, read_only(rows).to(own), strict=True)
        order = sorted(found)
        self._served = True
        shares = torch.tensor([weights[number] for number in order])
        return _array(self.server.aggregate(plan, order, torch.stack([found[number] for number in order]), shares))

    def take(self, plan: RoundPlan, vector: Array) -> None:
        """Every client takes over what a server sends."""
        self.put_outward(plan, read_only(vector).to(self.whole))

    def outward(self) -> Tensor:
        """(n, P) parameters as torch lays them out, as they are tested: of the personal models, if there are any."""
        return self.backend.outward(torch.stack([tested(client).parameters for client in self.clients]))

    def state(self) -> GroupState:
        """All that clients keep between rounds; nothing is copied, so use it before they train on."""
        memory = [{name: _array(tensor) for name, tensor in client.memory.items()} for client in self.clients]
        kept = self.server.state() if self.server is not None and self._served else {}
        server = {name: _array(tensor) for name, tensor in kept.items()}
        return {"numbers": self.numbers, "parameters": _array(self.stack), "memory": memory, "server": server}

    def restore(self, state: GroupState) -> None:
        """Continue from a state of the same clients in the same order."""
        self._tested, self._tested_in = {}, {}
        self.stack.copy_(read_only(state["parameters"]))
        for client, saved in zip(self.clients, state["memory"], strict=True):
            for name, tensor in client.memory.items():
                tensor.copy_(read_only(saved[name]))
        if self.server is not None and state["server"]:
            self.server.restore({name: read_only(array) for name, array in state["server"].items()})
            self._served = True

    def close(self) -> None:
        """Stop the threads."""
        self.workers.close()


def read_only(array: Array) -> Tensor:
    """A tensor on an array's memory, which may be shared with other processes and must not be written to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def _by_number(owners: Sequence[Sequence[int]], remote: Sequence[Array]) -> dict[int, Tensor]:
    """Rows of clients elsewhere by their numbers."""
    found: dict[int, Tensor] = {}
    for numbers, rows in zip(owners, remote, strict=True):
        found |= zip(numbers, read_only(rows), strict=True)
    return found


def _array(tensor: Tensor) -> Array:
    """A tensor's memory as an array; on a GPU, a copy of it."""
    return tensor.detach().cpu().numpy()


def backend_for(run: Federation, data: Sequence[ClientData]) -> Backend:
    """The backend that trains a federation, or the part of it that has these data, proved on its model."""
    phases = phases_of_a_run(run.method, run.hyper, run.rounds)
    return prepare(run.models, run.device, run.recipe, run.hyper.batch, phases, data, run.backend)


def _on_lines(starts: Tensor, clients: int, device: torch.device, shared: bool, extra: int) -> Tensor:
    """(n, P + extra) rows that each begin on a cache line: vectors that straddle two lines cost a tenth of the time.

    `shared`: in memory that worker processes share. The `extra` columns are zeros.
    """
    size = starts.shape[1]
    shape = (clients, -(-(size + extra) // 16) * 16)
    stack = (shared_empty(shape) if shared else torch.empty(shape, device=device))[:, : size + extra]
    stack[:, :size] = starts.expand(clients, -1)
    stack[:, size:] = 0
    return stack
