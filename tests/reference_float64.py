"""Every row of the table in float64, with what reference.py leaves out: falling rates, limits of steps, weight decay.

Written from the papers' equations, on flat vectors (P,). It takes from the package only what is agreed beforehand:
initial weights and where they lie in a flat vector, the order of batches, who is drawn to take part, the frame, and the
numbers. In float64 rounding is far below what float32 leaves, so a comparison may be strict.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from torch import Tensor, nn

from firma.engines.engine import Federation
from firma.models.split_model import Piece
from firma.seeds import generator
from firma.settings import Hyper
from firma.training.derived_head import frame as agreed_frame

PHI = (1 + math.sqrt(5)) / 2
Models = dict[int, Tensor]  # by client, (P,)
Mix = Callable[
    [list[int], Models, int], Models
]  # of those present what they trained in which round: what whom is given


@dataclass(frozen=True)
class World:
    """A federation: data, numbers, and the loss as a function of flat parameters."""

    run: Federation
    extractor: nn.Module
    head: nn.Module
    pieces: tuple[Piece, ...]  # where each tensor is in a flat vector

    @property
    def numbers(self) -> Hyper:
        return self.run.hyper

    @property
    def clients(self) -> range:
        return range(len(self.run.data))

    @property
    def start(self) -> Tensor:
        """What all clients start from."""
        return self.run.models[0].flat().double()

    def size(self, client: int) -> int:
        return len(self.run.data[client].labels)

    def named(self, flat: Tensor, part: str) -> dict[str, Tensor]:
        """The tensors of a part by the names that its module has for them."""
        pieces = [piece for piece in self.pieces if piece.name.startswith(f"{part}.")]
        return {each.name.removeprefix(f"{part}."): flat[each.start : each.stop].view(each.shape) for each in pieces}

    def where(self, chosen: Callable[[str], bool]) -> Tensor:
        """(P,) 1 for the parameters whose name is chosen, 0 for all others."""
        found = torch.zeros_like(self.start)
        for piece in self.pieces:
            found[piece.start : piece.stop] = float(chosen(piece.name))
        return found

    @property
    def of_extractor(self) -> Tensor:
        return self.where(lambda name: name.startswith("extractor."))

    @property
    def of_head(self) -> Tensor:
        return self.where(lambda name: name.startswith("head."))

    @property
    def of_all(self) -> Tensor:
        return self.where(lambda name: True)

    def features(self, flat: Tensor, client: int, rows: Tensor) -> Tensor:
        inputs = self.run.data[client].inputs[rows].double()
        return torch.func.functional_call(self.extractor, self.named(flat, "extractor"), inputs)

    def outputs(self, flat: Tensor, features: Tensor) -> Tensor:
        return torch.func.functional_call(self.head, self.named(flat, "head"), features)

    def loss(self, flat: Tensor, features: Tensor, client: int, rows: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.outputs(flat, features), self.run.data[client].labels[rows])

    def gradient(self, flat: Tensor, client: int, rows: Tensor) -> Tensor:
        """∇F_i on these rows."""
        at = flat.detach().requires_grad_()
        return torch.autograd.grad(self.loss(at, self.features(at, client, rows), client, rows), at)[0]

    def accuracy(self, flat: Tensor, client: int) -> float:
        """On the client's training data."""
        rows = torch.arange(self.size(client))
        found = self.outputs(flat, self.features(flat, client, rows)).argmax(1)
        return float((found == self.run.data[client].labels).double().mean())

    def rate(self, number: int) -> float:
        """η of a round."""
        falls = self.numbers.schedule == "cosine"
        return self.numbers.rate * (0.5 * (1 + math.cos(math.pi * number / self.run.rounds)) if falls else 1.0)

    def present(self, number: int) -> list[int]:
        """Who takes part in a round, in the order of the ring."""
        wanted = max(1, math.floor(self.run.participation * len(self.clients) + 0.5))
        drawn = generator(self.run.seed, "participation", number).permutation(len(self.clients))[:wanted].tolist()
        return [client for client in self.run.order if wanted == len(self.clients) or client in drawn]

    def shares(self, there: Sequence[int]) -> dict[int, float]:
        """n_i / n among these."""
        total = sum(self.size(client) for client in there)
        return {client: self.size(client) / total for client in there}

    def batches(
        self, client: int, shuffle: np.random.Generator, epochs: int, limit: int | None = None
    ) -> Iterator[Tensor]:
        """Rows of the batches of some epochs, of which no more than `limit` are taken."""
        taken = count()
        for _ in range(epochs):
            order = None
            for start in range(0, self.size(client), self.numbers.batch):
                if limit is not None and next(taken) >= limit:
                    return
                order = shuffle.permutation(self.size(client)) if order is None else order
                yield torch.from_numpy(order[start : start + self.numbers.batch])

    def joint(self, client: int, number: int) -> Iterator[Tensor]:
        """The batches of a round that trains the whole model at once."""
        shuffle = generator(self.run.seed, "batches", client, number)
        return self.batches(client, shuffle, self.numbers.epochs, self.numbers.local_steps)

    def sgd(self, number: int) -> "Sgd":
        """A fresh optimiser of a round."""
        return Sgd(self.rate(number), self.numbers.momentum, self.numbers.weight_decay)


@dataclass
class Sgd:
    """v ← μv + g, x ← x - η(λx + v); `length` is by how many plain steps this moves along a constant gradient."""

    rate: float
    momentum: float
    decay: float
    velocity: Tensor | float = 0.0
    unit: float = 0.0
    length: float = 0.0

    def __call__(self, x: Tensor, g: Tensor, part: Tensor | float = 1.0) -> Tensor:
        self.velocity = self.momentum * self.velocity + part * g
        self.unit = self.momentum * self.unit + 1
        self.length += self.unit
        return x - self.rate * part * (self.decay * x + self.velocity)


@dataclass
class Adam:
    """Kingma and Ba, Algorithm 1, with the decoupled decay of AdamW; every parameter counts its own steps."""

    rate: float
    decay: float
    first: Tensor
    second: Tensor
    steps: Tensor

    def __call__(self, x: Tensor, g: Tensor, part: Tensor) -> Tensor:
        self.first = self.first + part * 0.1 * (g - self.first)
        self.second = self.second + part * 0.001 * (g * g - self.second)
        self.steps = self.steps + part
        taken = self.steps.clamp(min=1)
        mean, square = self.first / (1 - 0.9**taken), self.second / (1 - 0.999**taken)
        return x - self.rate * part * (self.decay * x + mean / (square.sqrt() + 1e-8))


def adam(world: World, number: int, kept: Adam | None = None) -> Adam:
    """A fresh optimiser, or the one that was kept, at the rate of a round."""
    zero = torch.zeros_like(world.start)
    first, second, steps = (zero, zero, zero) if kept is None else (kept.first, kept.second, kept.steps)
    return Adam(world.rate(number), world.numbers.weight_decay, first, second, steps)


# Methods that train, and then mix


def joint(world: World, number: int) -> list[tuple[Tensor, int]]:
    """Phases of a round: which parameters are trained, for how many epochs."""
    del number
    return [(world.of_all, world.numbers.epochs)]


def two_phase(world: World, number: int) -> list[tuple[Tensor, int]]:
    del number
    return [(world.of_head, world.numbers.head_epochs), (world.of_extractor, world.numbers.extractor_epochs)]


def extractor_alone(world: World, number: int) -> list[tuple[Tensor, int]]:
    del number
    return [(world.of_extractor, world.numbers.extractor_epochs)]


def trained_and_mixed(
    world: World,
    shared: Tensor,
    mix: Mix,
    phases=joint,
    optimiser=lambda world, client, number: world.sgd(number),
    start: Models | None = None,
    limit: Callable[[int], int | None] | None = None,
    pull: float = 0.0,
) -> Models:
    """Rounds of local training, and of mixing the shared parameters; `pull` is the weight of a proximal term."""
    models = dict.fromkeys(world.clients, world.start) if start is None else dict(start)
    for number in range(world.run.rounds):
        there, trained = world.present(number), {}
        for client in there:
            x, step = models[client], optimiser(world, client, number)
            shuffle = generator(world.run.seed, "batches", client, number)
            most = world.numbers.local_steps if limit is None else limit(client)
            for part, epochs in phases(world, number):
                for rows in world.batches(client, shuffle, epochs, most):
                    x = step(x, world.gradient(x, client, rows) + pull * (x - models[client]), part)
            trained[client] = x
        models |= trained
        for client, mixed in mix(there, trained, number).items():
            models[client] = torch.where(shared > 0, mixed, models[client])
    return models


def average(world: World, trained: Models) -> Tensor:
    """Σ (n_i / n) x_i."""
    shares = world.shares(list(trained))
    return sum(shares[client] * x for client, x in trained.items())


def served(world: World) -> Mix:
    """The average of those present, for everybody."""
    return lambda there, trained, number: dict.fromkeys(world.clients, average(world, trained))


def around(there: list[int], client: int) -> tuple[int, int]:
    """The neighbours on the ring, left and right."""
    place = there.index(client)
    return there[place - 1], there[(place + 1) % len(there)]


def ring_pass(there: list[int], x: Models, keep: float, weights: Callable[[int, int], tuple[float, float]]) -> Models:
    """x_i ← γ x_i + (1 - γ)(a_left x_left + a_right x_right); weights of zero leave a client as it is."""
    found = {}
    for client in there:
        left, right = around(there, client)
        a, b = weights(left, right)
        found[client] = keep * x[client] + (1 - keep) * (a * x[left] + b * x[right]) if a + b else x[client]
    return found


def golden(left: int, right: int) -> tuple[float, float]:
    del left, right
    return 1 / PHI, 1 / PHI**2


def gated(world: World, trained: Models) -> Callable[[int, int], tuple[float, float]]:
    """The FIRMA paper, Eqs. 6 and 7: half golden, half by the accuracies that reach the threshold."""
    reached = {client: world.accuracy(x, client) for client, x in trained.items()}
    passed = {client: value if value >= world.numbers.threshold else 0.0 for client, value in reached.items()}

    def weights(left: int, right: int) -> tuple[float, float]:
        total = passed[left] + passed[right]
        if not total:
            return 0.0, 0.0
        return (1 / PHI + passed[left] / total) / 2, (1 / PHI**2 + passed[right] / total) / 2

    return weights


def fibfls_adam(world: World):
    """Adam whose moments each client keeps from round to round."""
    kept: dict[int, Adam] = {}

    def optimiser(world: World, client: int, number: int) -> Adam:
        kept[client] = adam(world, number, kept.get(client))
        return kept[client]

    return optimiser


def local(world: World) -> Models:
    return trained_and_mixed(world, world.of_all, lambda there, trained, number: {})


def fedavg(world: World) -> Models:
    return trained_and_mixed(world, world.of_all, served(world))


def fedprox(world: World) -> Models:
    return trained_and_mixed(world, world.of_all, served(world), pull=world.numbers.proximal)


def fedrep(world: World) -> Models:
    return trained_and_mixed(world, world.of_extractor, served(world), two_phase)


def fedper(world: World) -> Models:
    return trained_and_mixed(world, world.of_extractor, served(world))


def lg_fedavg(world: World) -> Models:
    return trained_and_mixed(world, world.of_head, served(world))


def fedbn(world: World) -> Models:
    """All but the layer norms of the built-in model, which has them in the extractor."""
    norms = [f"extractor.{name}." for name, each in world.extractor.named_modules() if isinstance(each, nn.LayerNorm)]
    assert norms
    return trained_and_mixed(world, world.where(lambda name: not name.startswith(tuple(norms))), served(world))


def rdfl(world: World) -> Models:
    def mix(there: list[int], trained: Models, number: int) -> Models:
        del number
        return ring_pass(there, trained, world.numbers.retention, lambda left, right: (0.5, 0.5))

    return trained_and_mixed(world, world.of_all, mix)


def d_psgd(world: World) -> Models:
    def mix(there: list[int], trained: Models, number: int) -> Models:
        del number
        near = {client: {client, *around(there, client)} for client in there}
        return {client: sum(trained[other] for other in near[client]) / len(near[client]) for client in there}

    return trained_and_mixed(world, world.of_all, mix)


def fibfl(world: World) -> Models:
    def mix(there: list[int], trained: Models, number: int) -> Models:
        del number
        return ring_pass(there, trained, world.numbers.retention, golden)

    return trained_and_mixed(world, world.of_extractor, mix, two_phase, fibfls_adam(world))


def fibfl_plus(world: World) -> Models:
    def mix(there: list[int], trained: Models, number: int) -> Models:
        del number
        return ring_pass(there, trained, world.numbers.retention, gated(world, trained))

    return trained_and_mixed(world, world.of_extractor, mix, two_phase, fibfls_adam(world))


def fibfl_plus_plus(world: World) -> Models:
    numbers, rounds = world.numbers, world.run.rounds
    warm = rounds // 6

    def phases(world: World, number: int) -> list[tuple[Tensor, int]]:
        whole = [(world.of_all, max(numbers.head_epochs, numbers.extractor_epochs))]
        return whole if number < warm else two_phase(world, number)

    def mix(there: list[int], trained: Models, number: int) -> Models:
        if number < warm:
            return dict.fromkeys(there, average(world, trained))
        falls = 0.5 * (1 + math.cos(math.pi * (number - warm) / max(rounds - warm - 1, 1)))
        keep = numbers.retention_end + (numbers.retention_start - numbers.retention_end) * falls
        passes, weights, x = math.ceil(len(there) / 2), gated(world, trained), trained
        for _ in range(passes):
            x = ring_pass(there, x, keep ** (1 / passes), weights)
        return x

    return trained_and_mixed(world, world.of_extractor, mix, phases, fibfls_adam(world))


# Methods with a personal model, or a head that is fixed


def tuned(world: World, x: Tensor, client: int, number: int, part: Tensor) -> Tensor:
    """A few epochs of plain SGD from the model of a round: no decay, no limit, a rate of its own."""
    step = Sgd(world.numbers.personal_rate, world.numbers.momentum, 0.0)
    shuffle = generator(world.run.seed, "personal", client, number)
    for rows in world.batches(client, shuffle, world.numbers.personal_epochs):
        x = step(x, world.gradient(x, client, rows), part)
    return x


def fedavg_ft(world: World) -> Models:
    last = world.run.rounds - 1
    return {client: tuned(world, x, client, last, world.of_all) for client, x in fedavg(world).items()}


def fedbabu(world: World) -> Models:
    found, last = trained_and_mixed(world, world.of_extractor, served(world), extractor_alone), world.run.rounds - 1
    return {client: tuned(world, x, client, last, world.of_all) for client, x in found.items()}


def with_frames(world: World) -> Models:
    """The common frame as head, with the logarithms of the client's own class shares as bias."""
    found = {}
    for client in world.clients:
        x, labels = world.start, world.run.data[client].labels
        head = world.named(x, "head")
        classes, features = head["weight"].shape
        counts = torch.tensor([int((labels == each).sum()) for each in range(classes)]).double()
        head["weight"].copy_(agreed_frame(classes, features, world.run.seed))
        head["bias"].copy_(((counts + 0.5) / (len(labels) + 0.5 * classes)).log())
        found[client] = x
    return found


def fedetf(world: World) -> Models:
    return trained_and_mixed(world, world.of_extractor, served(world), extractor_alone, start=with_frames(world))


def frame(world: World) -> Models:
    """The average of those present is theirs alone, and so are their class shares q; ½ ‖q_i - q‖₁ is the distance."""
    classes = len(world.named(world.start, "head")["bias"])
    own = {
        client: torch.bincount(world.run.data[client].labels, minlength=classes).double() / world.size(client)
        for client in world.clients
    }
    heard: Models = {}  # q of the last round in which the client took part
    last: dict[int, int] = {}

    def distance(client: int) -> float:
        return float((own[client] - heard[client]).abs().sum()) / 2

    def mix(there: list[int], trained: Models, number: int) -> Models:
        heard.update(dict.fromkeys(there, average(world, {client: own[client] for client in there})))
        last.update(dict.fromkeys(there, number))
        return dict.fromkeys(there, average(world, trained))

    def limit(client: int) -> int | None:
        """Divided by the distance, once that is known."""
        most = world.numbers.local_steps
        return most if client not in heard else math.ceil(most / distance(client) - 1e-6)

    def fresh(world: World, client: int, number: int) -> Adam:
        del client
        return adam(world, number)

    found = trained_and_mixed(
        world, world.of_extractor, mix, extractor_alone, fresh, start=with_frames(world), limit=limit
    )
    for client, number in last.items():
        x = found[client]
        found[client] = x + distance(client) * (tuned(world, x, client, number, world.of_head) - x)
    return found


# Methods with a local step, or an average, of their own


def scaffold(world: World) -> Models:
    """Karimireddy et al., Algorithm 1, option II; momentum lengthens the steps as it would along a constant g."""
    x, zero = world.start, torch.zeros_like(world.start)
    control, controls = zero, dict.fromkeys(world.clients, zero)
    for number in range(world.run.rounds):
        moved, changes = [], []
        for client in world.present(number):
            y, step = x, world.sgd(number)
            for rows in world.joint(client, number):
                y = step(y, world.gradient(y, client, rows) - controls[client] + control)
            new = controls[client] - control + (x - y) / (step.length * step.rate)
            changes.append(new - controls[client])
            moved.append(y)
            controls[client] = new
        x, control = sum(moved) / len(moved), control + sum(changes) / len(world.clients)
    return dict.fromkeys(world.clients, x)


def fednova(world: World) -> Models:
    """Wang et al., Eq. 7; ‖a_i‖₁ adds up how often momentum applies each gradient."""
    x, momentum = world.start, world.numbers.momentum
    for number in range(world.run.rounds):
        direction, effective = torch.zeros_like(x), 0.0
        for client, share in world.shares(world.present(number)).items():
            y, step, steps = x, world.sgd(number), 0
            for rows in world.joint(client, number):
                y, steps = step(y, world.gradient(y, client, rows)), steps + 1
            norm = sum(momentum ** (later - each) for each in range(steps) for later in range(each, steps))
            direction += share * (x - y) / norm
            effective += share * norm
        x = x - effective * direction
    return dict.fromkeys(world.clients, x)


def ditto(world: World) -> Models:
    """Li et al., Algorithm 1, with FedAvg for the shared model; both models see the same batches."""
    x, own = world.start, dict.fromkeys(world.clients, world.start)
    for number in range(world.run.rounds):
        moved = {}
        for client in world.present(number):
            w, v, step_w, step_v = x, own[client], world.sgd(number), world.sgd(number)
            for rows in world.joint(client, number):
                w = step_w(w, world.gradient(w, client, rows))
                v = step_v(v, world.gradient(v, client, rows) + world.numbers.attraction * (v - x))
            moved[client], own[client] = w, v
        x = average(world, moved)
    return own


def apfl(world: World) -> Models:
    """Deng et al., Algorithm 1, and Eq. 10 for α in every step."""
    x, own = world.start, dict.fromkeys(world.clients, world.start)
    alphas = dict.fromkeys(world.clients, world.numbers.interpolation)
    for number in range(world.run.rounds):
        moved = []
        for client in world.present(number):
            w, v, alpha, step_w, step_v = x, own[client], alphas[client], world.sgd(number), world.sgd(number)
            for rows in world.joint(client, number):
                at_w, at_mixture = (world.gradient(each, client, rows) for each in (w, alpha * v + (1 - alpha) * w))
                new = alpha - step_w.rate * float((v - w) @ at_mixture)
                w, v = step_w(w, at_w), step_v(v, alpha * at_mixture)
                alpha = min(1.0, max(0.0, new))
            own[client], alphas[client] = v, alpha
            moved.append(w)
        x = sum(moved) / len(moved)
    return {client: alphas[client] * own[client] + (1 - alphas[client]) * x for client in world.clients}


def pfedme(world: World) -> Models:
    """T Dinh et al., Algorithm 1; θ by K gradient steps from w for each batch."""
    numbers, x, own = world.numbers, world.start, dict.fromkeys(world.clients, world.start)
    for number in range(world.run.rounds):
        moved = []
        for client in world.present(number):
            w, step = x, world.sgd(number)
            for rows in world.joint(client, number):
                theta = w
                for _ in range(numbers.inner_steps):
                    pulled = world.gradient(theta, client, rows) + numbers.attraction * (theta - w)
                    theta = theta - numbers.inner_rate * pulled
                w = step(w, numbers.attraction * (w - theta))
                own[client] = theta
            moved.append(w)
        x = (1 - numbers.server_rate) * x + numbers.server_rate * sum(moved) / len(moved)
    return own


def per_fedavg(world: World) -> Models:
    """Fallah et al., Algorithm 1, first order; two halves of a batch in place of independent ones."""
    x, alpha = world.start, world.numbers.inner_rate
    for number in range(world.run.rounds):
        moved = []
        for client in world.present(number):
            w, step = x, world.sgd(number)
            for rows in world.joint(client, number):
                half = len(rows) // 2
                first, second = (rows[:half], rows[half:]) if len(rows) > 3 else (rows, rows)
                w = step(w, world.gradient(w - alpha * world.gradient(w, client, first), client, second))
            moved.append(w)
        x = sum(moved) / len(moved)
    found = {}
    for client in world.clients:
        drawn = generator(world.run.seed, "personal", client, world.run.rounds - 1).permutation(world.size(client))
        rows = torch.from_numpy(drawn[: world.numbers.batch])
        found[client] = x - alpha * world.gradient(x, client, rows)
    return found


def feddbe(world: World) -> Models:
    """Zhang et al., Algorithm 1, as FedAvg + DBE; the first round is FedAvg's and finds the mean of all features."""
    numbers, x, consensus = world.numbers, world.start, None
    width = world.named(x, "head")["weight"].shape[1]
    bias = {client: torch.zeros(width, dtype=torch.float64) for client in world.clients}
    for number in range(world.run.rounds):
        moved, means = {}, {}
        for client in world.present(number):
            y, step, mean = x, world.sgd(number), torch.zeros(width, dtype=torch.float64)
            for rows in world.joint(client, number):
                at, own = y.detach().requires_grad_(), bias[client].requires_grad_()
                features = world.features(at, client, rows)
                mean = (1 - numbers.mean_momentum) * mean.detach() + numbers.mean_momentum * features.mean(0)
                loss = world.loss(at, features + own, client, rows)
                if consensus is not None:
                    loss = loss + numbers.mean_penalty * (0.5 * (mean - consensus) ** 2).mean()
                slope, slope_of_bias = torch.autograd.grad(loss, [at, own])
                y = step(y, slope)
                if consensus is not None:
                    bias[client] = (own - step.rate * slope_of_bias).detach()
            moved[client], means[client] = y, mean.detach()
        x, consensus = average(world, moved), average(world, means) if consensus is None else consensus
    found = {}
    for client in world.clients:
        found[client] = x.clone()
        head = world.named(found[client], "head")
        head["bias"].add_(head["weight"] @ bias[client].detach())
    return found


def gradient_tracking(world: World) -> Models:
    """Liu et al., Algorithm 1 (K-GT) on a ring, with a server step of 1 and corrections that start at zero."""
    x = dict.fromkeys(world.clients, world.start)
    corrections = dict.fromkeys(world.clients, torch.zeros_like(world.start))
    for number in range(world.run.rounds):
        there, y, z = world.present(number), {}, {}
        for client in there:
            y[client], step = x[client], world.sgd(number)
            for rows in world.joint(client, number):
                y[client] = step(y[client], world.gradient(y[client], client, rows) + corrections[client])
            z[client] = (x[client] - y[client]) / (step.length * step.rate)
        x |= ring_pass(there, y, world.numbers.retention, lambda left, right: (0.5, 0.5))
        mixed = ring_pass(there, z, world.numbers.retention, lambda left, right: (0.5, 0.5))
        corrections |= {client: corrections[client] - z[client] + mixed[client] for client in there}
    return x


ROWS: dict[str, Callable[[World], Models]] = {
    "local": local, "fedavg": fedavg, "fedrep": fedrep, "rdfl": rdfl, "fibfl": fibfl, "fibfl+": fibfl_plus,
    "fibfl++": fibfl_plus_plus, "frame": frame, "scaffold": scaffold, "fednova": fednova, "ditto": ditto, "apfl": apfl,
    "pfedme": pfedme, "per-fedavg": per_fedavg, "feddbe": feddbe, "gradient-tracking": gradient_tracking,
    "fedprox": fedprox, "fedavg-ft": fedavg_ft, "fedbn": fedbn, "fedper": fedper, "lg-fedavg": lg_fedavg,
    "fedbabu": fedbabu, "fedetf": fedetf, "d-psgd": d_psgd,
}  # fmt: skip


def expected(run: Federation) -> Tensor:
    """(N, P) float64 what the row of a federation gives every client."""
    model = run.models[0].copy()
    world = World(run, model.extractor.double(), model.head.double(), model.layout().pieces)
    found = ROWS[run.method.name](world)
    return torch.stack([found[client].detach() for client in range(len(run.data))])
