"""Local training at a real site: its data, its model and its head, with the same code and seeds as the simulation."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firma.algorithms.catalogue import algorithm_of
from firma.data.dataset import Dataset, load_dataset
from firma.data.standardise import Standardiser, fit_standardiser
from firma.engines.worker_pool import WorkerPool
from firma.errors import BadInput
from firma.models.architecture import digest
from firma.models.build import with_data
from firma.models.probe import InputSpec
from firma.models.split_model import SplitModel
from firma.peer.agreed_model import agreed_model, agreed_spec
from firma.peer.ring_file import Ring, Task
from firma.schedule import RoundPlan, phases_of_a_run
from firma.tasks.targets import bins
from firma.tasks.task import Task as JudgedTask
from firma.training.algorithm import Algorithm, overrides
from firma.training.backend import Backend, after_mixing, gate_accuracy, metrics, seeded, train_round
from firma.training.derived_head import derived_head, obstacle
from firma.training.local_step import (
    PLAIN,
    Client,
    ClientData,
    Job,
    Trainer,
    as_tensor,
    elements,
    new_client,
    recipe,
    tested,
)
from firma.training.personal import personalise
from firma.training.preflight import prepare
from firma.training.private_parameters import with_private

_SCORED = 1000  # samples are enough to tell a good extractor from a bad one, within three points


def load_own(path: str, task: Task) -> Dataset:
    """This site's data with labels numbered as the ring file lists them, for a site may lack some classes.

    A table's columns are put into the order of the ring file, if that lists them.
    """
    try:
        whole = load_dataset(_located(path, task), task=task.kind, one_class=True)  # other sites have other classes
    except BadInput as error:  # the option of a site is called otherwise
        raise BadInput(str(error).replace("dataset = ", "data = ", 1)) from None
    own = columns_in_order(whole, task.columns, path)
    if own.shape != tuple(task.shape):
        raise BadInput(
            f"data = {path!r}: inputs have shape {own.shape}, but the ring file requires {tuple(task.shape)}; "
            "the rows of a table are flat, so images need an .npz file"
        )
    own = replace(own, x_train=_agreed_type(path, own.x_train, task), x_test=_agreed_type(path, own.x_test, task))
    if task.kind != "classification":
        return _in_order(own, path, task)
    unknown = [name for name in own.labels if name not in task.labels]
    if unknown:
        raise BadInput(
            f"data = {path!r}: label {unknown[0]!r} is not in the ring file, which has {_listed(task.labels)}"
        )
    numbers = np.array([task.labels.index(name) for name in own.labels], dtype=np.int64)
    scale = task.scale if own.x_train.dtype == np.uint8 else 1.0
    return Dataset(
        own.name, own.x_train, numbers[own.y_train], own.x_test, numbers[own.y_test], len(task.labels), scale,
        columns=own.columns,
    )  # fmt: skip


def _agreed_type(path: str, stored: NDArray[np.generic], task: Task) -> NDArray[np.generic]:
    """Inputs of the type in the ring file, for the model must read the same at every site; bytes are scaled later.

    Tables hold tokens as floats.
    """
    if task.dtype == "float32":
        if stored.dtype == np.uint8:
            return stored
        with np.errstate(over="ignore"):  # what becomes infinite is refused, with its place, by `check_inputs`
            return stored.astype(np.float32)
    whole = stored.astype(np.int64)
    if not np.array_equal(whole, stored):
        raise BadInput(
            f"data = {path!r}: inputs are not integers ({stored.dtype}), but the ring file requires tokens "
            "(dtype = 'int64')"
        )
    return whole


def standardised_own(own: Dataset) -> tuple[Dataset, Standardiser]:
    """This site's data scaled by the mean and deviation of its training data, and these statistics: they stay here."""
    fitted = fit_standardiser(own.x_train, own.scale)
    return replace(own, x_train=fitted.apply(own.x_train), x_test=fitted.apply(own.x_test), scale=1.0), fitted


def columns_in_order(own: Dataset, columns: tuple[str, ...], path: str) -> Dataset:
    """A table with its columns in this order; data whose columns have no names are returned as they are."""
    if not columns or not own.columns or own.columns == columns:
        return own
    for what, names in (
        ("lacks column", [name for name in columns if name not in own.columns]),
        ("has column", [name for name in own.columns if name not in columns]),
    ):
        if names:
            other = "which the ring file requires" if what == "lacks column" else "which is not in the ring file"
            raise BadInput(f"data = {path!r}: {what} {names[0]!r}, {other}; it lists {_listed(columns)}")
    order = [own.columns.index(name) for name in columns]
    return replace(own, x_train=own.x_train[:, order], x_test=own.x_test[:, order], columns=columns)


def _located(path: str, task: Task) -> Path:
    """The file, with the ring file's labels as its label columns where the task has several and it is a table."""
    named = Path(path).suffix.lower() in (".csv", ".parquet") and task.kind != "classification"
    return Path(f"{path}:{','.join(task.labels)}") if named else Path(path)


def _in_order(own: Dataset, path: str, task: Task) -> Dataset:
    """Targets in the order of the ring file's labels; arrays have no names, so their columns must be in that order."""
    if own.classes != len(task.labels):
        raise BadInput(
            f"data = {path!r}: y has {own.classes} columns, but the ring file has {len(task.labels)} labels: "
            f"{_listed(task.labels)}"
        )
    scale = task.scale if own.x_train.dtype == np.uint8 else 1.0
    return replace(own, labels=task.labels, scale=scale)


def _listed(labels: tuple[str, ...]) -> str:
    """The labels of a ring file for a message: all, or the first ten."""
    return ", ".join(labels[:10]) + (f", … ({len(labels)} in all)" if len(labels) > 10 else "")


def check_gate(ring: Ring) -> None:
    """Refuse to verify a gate that the method does not have."""
    if ring.row.gate != "yes":
        raise BadInput(f"--verify-gate requires a method with a gate; {ring.method!r} has no gate to verify")


def proportions(own: Dataset, edges: tuple[float, ...] = ()) -> tuple[float, ...]:
    """(C,) shares of the classes in the training data; of labels, or of the classes that edges cut a target into."""
    return _shares(_counts(own, edges).astype(np.float64))


def noisy_proportions(own: Dataset, epsilon: float, edges: tuple[float, ...] = ()) -> tuple[float, ...]:
    """(C,) shares with Laplace noise on the counts: ε-differentially private for one sample more or less.

    A sample with several labels may change as many counts as there are labels, and the noise is that much larger. It
    comes from the system, not from the federation's seed, which everybody knows.
    """
    counts = _counts(own, edges)
    changed = len(counts) if own.task == "multi-label" else 1
    noise: NDArray[np.float64] = np.random.default_rng().laplace(0.0, changed / epsilon, len(counts))
    return _shares(np.maximum(counts + noise, 0.0))


def _counts(own: Dataset, edges: tuple[float, ...]) -> NDArray[np.int64]:
    """(C,) training samples of each class, or label, or interval between edges."""
    if own.task == "multi-label":
        return np.asarray(own.y_train.sum(axis=0), dtype=np.int64)
    if own.task == "regression":
        return np.bincount(bins(own.y_train[:, 0], edges), minlength=len(edges) + 1)
    return np.bincount(own.y_train, minlength=own.classes)


def class_support(own: Dataset) -> tuple[int, ...]:
    """(C,) test samples of each class, or with each label; none for regression."""
    if own.task == "regression":
        return ()
    counts = own.y_test.sum(axis=0) if own.task == "multi-label" else np.bincount(own.y_test, minlength=own.classes)
    return tuple(int(count) for count in counts)


def _shares(counts: NDArray[np.float64]) -> tuple[float, ...]:
    total = counts.sum()
    shares = counts / total if total > 0 else np.full(len(counts), 1 / len(counts))
    return tuple(float(share) for share in shares)


@dataclass(frozen=True)
class Learner:
    """What a site trains: the model that it starts from, its samples, and the backend that trains it."""

    model: SplitModel
    data: ClientData
    backend: Backend


class LocalSite:
    """One client and its trainer. `shared` is the extractor in torch's layout, which is also the wire's."""

    def __init__(self, ring: Ring, me: int, own: Dataset | Learner, device: torch.device) -> None:
        self.ring, self.row, self.hyper = ring, ring.row, ring.hyper
        self.task = JudgedTask(ring.task.kind)
        learner = own if isinstance(own, Learner) else self._learner(me, own, device)
        self.layout, self.backend = learner.model.layout(), learner.backend
        self._spans = self.layout.shared("extractor")
        algorithm, outputs = self._algorithm(learner.model), ring.task.outputs
        self._recipe = recipe(self.row, self.hyper, self.task, algorithm, self._spans, outputs)
        self.sent = self.layout.of_shared("extractor", self._recipe.mixed)  # what members send
        self.architecture = digest(learner.model, code=False)  # the ring file answers for the code
        self._workers = WorkerPool(self.backend, 1, 1)
        self.processor = 0.0  # seconds of a core that training took
        start = learner.model.flat()
        self._fixed_head: Tensor | None = None
        if self.row.head != "learnt":
            self._fixed_head = derived_head(
                learner.model, self.row.head, self.hyper.head_bias, learner.data.labels, ring.seed
            )
            start[self.layout.span("head")] = self._fixed_head
        row = torch.zeros(len(start) + sum(self._recipe.mixed.values()), device=device)
        row[: len(start)] = self.backend.inward(start)
        self.client = new_client(me, learner.data, row, learner.model, self._recipe)

    def _learner(self, me: int, own: Dataset, device: torch.device) -> Learner:
        """The agreed model on this site's data set."""
        ring = self.ring
        number = me if self.hyper.initial == "per-client" else 0
        inputs = InputSpec(ring.task.shape, own.x_train.dtype, own.scale)
        spec = with_data(agreed_spec(ring), own.x_train, own.x_test)
        model = agreed_model(ring, spec, inputs, number)
        if self.row.head == "tight-frame" and (why := obstacle(model.head, self.task.name)):
            raise BadInput(f"ring file: method = {ring.method!r}: {why}; choose a method with learnt heads")
        if self.row.head == "random" and number != 0:  # the same at every site
            model = replace(model, head=agreed_model(ring, spec, inputs, 0).head)
        model = with_private(model, self.row, algorithm_of(self.row, self.hyper))
        labels, test_labels = torch.from_numpy(own.y_train), torch.from_numpy(own.y_test)
        inputs_of = (as_tensor(each, model.inputs) for each in (own.x_train, own.x_test))
        data = ClientData(next(inputs_of), labels, next(inputs_of), test_labels, own.scale)
        phases = phases_of_a_run(self.row, self.hyper, ring.rounds)
        work = recipe(self.row, self.hyper, self.task, self._algorithm(model), model.layout().shared("extractor"))
        return Learner(model, data, prepare([model], device, work, self.hyper.batch, phases, [data]))

    def _algorithm(self, model: SplitModel) -> Algorithm:
        return algorithm_of(self.row, self.hyper).fitted(model)

    @property
    def samples(self) -> int:
        """Training samples; a Flower app says only when it has trained how many it has."""
        return len(self.client.data.labels)

    @property
    def parameters(self) -> Tensor:
        """(P,) parameters as torch lays them out, head included: they stay here."""
        return self.backend.outward(self.client.parameters)

    @parameters.setter
    def parameters(self, values: Tensor) -> None:
        self.client.parameters.copy_(self.backend.inward(values))

    def derive_head(self) -> None:
        """Give a fixed head the values that this ring agreed on, after a state of an earlier ring was taken over."""
        if self._fixed_head is not None:
            whole = self.parameters
            whole[self.layout.span("head")] = self._fixed_head.to(whole)
            self.parameters = whole

    @property
    def tested(self) -> Tensor:
        """(P,) parameters as they are tested: of the personal model, if there is one."""
        return self.backend.outward(tested(self.client).parameters)

    @property
    def shared(self) -> Tensor:
        """(E,) extractor alone, and vectors mixed with it, a copy: no memory is shared with the head."""
        whole = self.parameters
        mixed = [self.client.memory[name] for name in self._recipe.mixed]
        return torch.cat([*(whole[span] for span in self._spans), *mixed])

    def extractor_in(self, saved: Mapping[str, Tensor]) -> Tensor:
        """(E,) the same of a checkpoint's tensors, which are in torch's layout."""
        mixed = [saved[name] for name in self._recipe.mixed]
        return torch.cat([*(saved["parameters"][span] for span in self._spans), *mixed])

    def blend(self, extractor: Tensor, plan: RoundPlan) -> None:
        """Take over a mixed extractor, and the vectors mixed with it; the head stays as it is."""
        self.adopt(extractor)
        if overrides(self._recipe.algorithm, "after_mixing"):
            after_mixing(self.backend, self.client, self._job(plan), plan)

    def adopt(self, extractor: Tensor) -> None:
        """Take over an extractor, and the vectors mixed with it, as others have them; the head stays as it is."""
        self.parameters = self._with_extractor(extractor)
        at = elements(self._spans)
        for name, size in self._recipe.mixed.items():
            self.client.memory[name].copy_(extractor[at : at + size])
            at += size

    def _with_extractor(self, extractor: Tensor) -> Tensor:
        """(P,) this site's parameters with another extractor, as torch lays them out."""
        whole, at = self.parameters, 0
        for span in self._spans:
            whole[span] = extractor[at : at + span.stop - span.start].to(whole)
            at += span.stop - span.start
        return whole

    def _job(self, plan: RoundPlan) -> Job:
        return Job(self._recipe, plan.phases, self.hyper.batch, clients=len(self.ring.members), seed=self.ring.seed)

    def prepare(self, plan: RoundPlan) -> None:
        """Load the compiled kernels before the run: a round of no epochs and no hooks, which changes nothing."""
        nothing = replace(plan, phases=tuple(replace(phase, epochs=0) for phase in plan.phases))
        kept = {name: tensor.clone() for name, tensor in self.client.memory.items()}
        self._train(nothing, replace(self._job(plan), recipe=replace(self._recipe, algorithm=PLAIN)))
        for name, tensor in kept.items():
            self.client.memory[name].copy_(tensor)
        self.measure()

    def train(self, plan: RoundPlan) -> float:
        """One round's local training; the training accuracy where a gate asks for it, else 1."""
        return self._train(plan, self._job(plan))

    def _train(self, plan: RoundPlan, job: Job) -> float:
        def work(trainer: Trainer, client: Client) -> float:
            before = time.thread_time()
            reached = train_round(self.backend, trainer, client, job, plan, self.ring.seed)
            self.processor += time.thread_time() - before
            return reached

        return self._workers.each([self.client], work)[0]

    def score(self, extractor: Tensor) -> float:
        """Accuracy of another's extractor under this site's head on its training data, every n-th where there are many.

        It is a stand-in that is scored: nothing of this site changes.
        """
        whole, data = self._with_extractor(extractor), self.client.data
        apart = -(-len(data.labels) // _SCORED)
        scored = replace(data, inputs=data.inputs[::apart].contiguous(), labels=data.labels[::apart].contiguous())
        stand_in = replace(self.client, parameters=self.backend.inward(whole), data=scored)

        def work(trainer: Trainer, client: Client) -> float:
            with seeded(self.backend, self.ring.seed, "evaluation", client.number):
                return gate_accuracy(self.backend, trainer, client, self.task)

        return self._workers.each([stand_in], work)[0]

    def test(self, plan: RoundPlan) -> dict[str, float]:
        """Every metric of the task on this site's test data after a round; a personal model is made anew before."""

        def work(trainer: Trainer, client: Client) -> None:
            personalise(self.backend, trainer, client, self._job(plan), plan, self.ring.seed)

        if self._recipe.personal is not None:
            self._workers.each([self.client], work)
        return self.measure()

    def measure(self) -> dict[str, float]:
        """The same of the model as it is."""

        def work(trainer: Trainer, client: Client) -> dict[str, float]:
            with seeded(self.backend, self.ring.seed, "evaluation", client.number):
                return metrics(self.backend, trainer, client, self.task, test=True)

        return self._workers.each([tested(self.client)], work)[0]

    def close(self) -> None:
        """End the worker thread."""
        self._workers.close()
