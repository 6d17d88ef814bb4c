"""Mistakes in hooks, settings and names of algorithms of one's own: refused or warned of in one sentence."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import firma
from firma.algorithms.catalogue import resolved
from firma.method_lookup import lookup
from firma.methods import METHODS
from firma.models import SplitModel
from tests.own_methods import finish, run, with_hooks


class AllPrivate(firma.Algorithm):
    def is_private(self, name, module):
        return True


def test_an_algorithm_that_keeps_everything_private_is_refused():
    row = replace(METHODS["fedavg"], name="mine", algorithm=AllPrivate())
    with pytest.raises(firma.BadInput, match="mine: all parameters of the model are private, so clients would have"):
        firma.run("digits", "iid", row, clients=2, rounds=1)


def fails(one):
    raise KeyError("nothing here")


def nan_in_memory(self, one):
    one.memory["mine"] = one.memory["mine"] / 0


def nan_in_parameters(self, one):
    one.parameters.mul_(float("nan"))


def wrong_size(self, one):
    one.memory["mine"] = torch.zeros(7)


def not_a_tensor(self, one):
    one.memory["mine"] = 3.0


def undeclared(self, one):
    one.memory["other"] = torch.zeros(3)


def removed(self, one):
    del one.memory["mine"]


def own_state(self, one):
    self.count = 1


def nan_in_step(self, step):
    step.update(step.gradient())
    step.memory["mine"].div_(0.0)


def assigned(self, one):
    one.parameters = one.start


def a_half(self, one):
    one.memory["mine"] = one.memory["mine"] + 0.5


KEPT = {"memory": lambda self, model, shared: {"mine": torch.zeros(3)}}
MISTAKES = {
    "after_training for client 0 in round 1 failed .KeyError: 'nothing here', test_hook_mistakes.py, line": {
        "after_training": lambda self, one: fails(one)
    },
    "after_training for client 0 in round 1 made memory 'mine' NaN or infinite": {
        **KEPT, "after_training": nan_in_memory
    },
    "after_mixing for client 0 in round 1 made parameters NaN or infinite": {"after_mixing": nan_in_parameters},
    r"before_training for client 0 in round 1 changed the shape of 'mine' from \(3,\) to \(7,\)": {
        **KEPT, "before_training": wrong_size
    },
    r"changed the shape of 'mine' from \(5,\) to \(7,\); memory and mixed vectors keep their shapes": {
        "mixed": lambda self, shared: {"mine": 5}, "after_training": wrong_size
    },
    "assigned float to memory 'mine'; must be a tensor": {**KEPT, "after_training": not_a_tensor},
    "added 'other' to memory; declare it": {**KEPT, "after_training": undeclared},
    "removed 'mine' from memory": {**KEPT, "after_training": removed},
    "the attribute 'count' cannot be assigned; make settings": {"after_training": own_state},
    "change_gradient for client 0 in round 1 returned Tensor; must return nothing": {
        "change_gradient": lambda self, gradients, step: gradients * 2
    },
    "change_gradient for client 0 in round 1 made gradients NaN or infinite": {
        "change_gradient": lambda self, gradients, step: gradients.fill_(float("inf")).zero_ is None or None
    },
    r"local_step for client 0 in round 1 failed .BadInput: step.update: the shape of gradients is \(3,\); must be \(": {
        "local_step": lambda self, step: step.update(torch.zeros(3))
    },
    r"step.update: the shape of gradients is \(\); must be": {
        "local_step": lambda self, step: step.update(step.gradient().norm())
    },
    r"step.update: the shape of model is \(7,\); must be": {
        "local_step": lambda self, step: step.update(step.gradient(), torch.zeros(7))
    },
    r"step.gradient: the shape of at is \(10,\); must be": {
        "local_step": lambda self, step: step.update(step.gradient(at=step.parameters[:10]))
    },
    r"step.features: the shape of at is \(\d+,\); must be": {
        "local_step": lambda self, step: step.update(step.gradient() + step.features(torch.cat([step.start] * 2)).sum())
    },
    "step.gradient: at is float64; must be float32": {
        "local_step": lambda self, step: step.update(step.gradient(at=step.parameters.double()))
    },
    "step.outputs: at is of type list; must be a tensor": {
        "local_step": lambda self, step: step.update(step.gradient() + step.outputs([0.0]).sum())
    },
    "local_step for client 0 in round 1 made parameters NaN or infinite; look for divisions by zero": {
        "local_step": lambda self, step: step.update(step.gradient() / 0)
    },
    "local_step for client 0 in round 1 made parameters NaN or infinite.*": {
        "local_step": lambda self, step: step.update(step.gradient(loss=lambda outputs, targets: outputs.sum() / 0))
    },
    "local_step for client 0 in round 1 made memory 'mine' NaN or infinite": {**KEPT, "local_step": nan_in_step},
    "cannot assign to field 'parameters', .*; change tensors in place": {"after_training": assigned},
    "assigned float32 to 'mine', which was declared as int64 and would round it; declare it as float32": {
        "memory": lambda self, model, shared: {"mine": torch.zeros(3, dtype=torch.int64)}, "after_training": a_half
    },
    "after_mixing takes .self.; must take .self, one.": {"after_mixing": lambda self: None},
    "mixed is of type int; must be a method": {"mixed": 7},
    "memory returned list; must return a dict": {"memory": lambda self, model, shared: []},
    "memory: 'mine' is of type float; must be a tensor, such as torch.zeros": {
        "memory": lambda self, model, shared: {"mine": 1.0}
    },
    "memory: 'mine' contains NaN": {"memory": lambda self, model, shared: {"mine": torch.tensor([float("nan")])}},
    "memory: the name 'round.start' is reserved": {"memory": lambda self, model, shared: {"round.start": model}},
    "memory: the name 'optimiser.x' is reserved": {"memory": lambda self, model, shared: {"optimiser.x": model}},
    "memory: 'personal' has shape .3,.; it is the model that is tested": {
        "memory": lambda self, model, shared: {"personal": torch.zeros(3)}
    },
    "memory: the name 'mine' is already taken by `mixed`": {**KEPT, "mixed": lambda self, shared: {"mine": 3}},
    "mixed: the name 'parameters' is reserved for the shared parameters": {
        "mixed": lambda self, shared: {"parameters": 3}
    },
    "mixed: 'mine' has size 0; must be a whole number": {"mixed": lambda self, shared: {"mine": 0}},
    "memory failed .ZeroDivisionError": {"memory": lambda self, model, shared: 1 / 0},
    "fitted returned NoneType; must return an algorithm": {"fitted": lambda self, model: None},
    "is_private returned NoneType for 'extractor": {"is_private": lambda self, name, module: None},
    r"aggregate in round 1 returned shape \(3,\); must return a tensor of shape": {
        "aggregate": lambda self, server: torch.zeros(3)
    },
    "aggregate in round 1 returned NoneType": {"aggregate": lambda self, server: None},
    "aggregate in round 1 made the result NaN or infinite": {"aggregate": lambda self, server: server.mean / 0},
    "aggregate in round 1 failed .KeyError: 'gone'": {"aggregate": lambda self, server: server.memory["gone"]},
    "server_memory returned NoneType": {
        "server_memory": lambda self, shared: None, "aggregate": lambda self, server: server.mean
    },
}  # fmt: skip


@pytest.mark.parametrize("sentence", MISTAKES)
def test_mistakes_are_sentences(make_federation, sentence):
    with pytest.raises(firma.BadInput, match=sentence):
        run(make_federation, with_hooks(__module__=__name__, **MISTAKES[sentence]))  # whose lines sentences name


def test_the_traceback_of_a_hook_is_kept(make_federation):
    with pytest.raises(firma.BadInput) as caught:
        run(make_federation, with_hooks(after_training=lambda self, one: fails(one)))
    assert isinstance(caught.value.__cause__, KeyError)
    assert "in fails\n    raise KeyError" in str(caught.value)


def test_in_processes_the_traceback_is_kept_too(make_federation):
    base = make_federation(
        replace(METHODS["fedavg"], name="mine", algorithm=with_hooks(after_training=lambda self, one: fails(one)))
    )
    drawing = SplitModel(nn.Sequential(nn.Linear(12, 16), nn.Dropout(0.2)), nn.Linear(16, 4))
    with pytest.raises(firma.BadInput, match=r"after_training for client . in round 1 failed") as caught:
        finish(replace(base, models=[drawing], workers=2))
    assert "in fails\n    raise KeyError" in str(caught.value)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("rdfl", "has an aggregate of its own, which runs at a server, but topology = 'ring' has none"),
        ("frame", "topology = 'all-reduce' has none"),
        ("local", "topology = 'none' has none"),
        ("d-psgd", "topology = 'ring' has none|topology = '.*' has none"),
    ],
)
def test_aggregate_requires_a_server(make_federation, row, sentence):
    with pytest.raises(firma.BadInput, match=sentence):
        run(make_federation, with_hooks(aggregate=lambda self, server: server.mean), row)


def test_aggregate_takes_the_place_of_a_robust_combine(make_federation):
    row = replace(
        METHODS["fedavg"], name="mine", combine="median", algorithm=with_hooks(aggregate=lambda self, s: s.mean)
    )
    with pytest.raises(firma.BadInput, match="combine = 'median' would have no effect; use combine = 'mean'"):
        make_federation(row, 5)


def test_aggregate_requires_a_common_start(make_federation):
    with pytest.raises(firma.BadInput, match="initial = 'per-client' cannot be combined with algorithm"):
        run(make_federation, with_hooks(aggregate=lambda self, server: server.mean), initial="per-client")


@dataclass(frozen=True)
class WithTensor(firma.Algorithm):
    """A setting that cannot identify a run."""

    size: object = None


@dataclass
class Thawed(firma.Algorithm):
    """Forgets to be frozen."""

    mu: float = 1.0


def test_settings_must_identify_a_run(make_federation):
    with pytest.raises(firma.BadInput, match="its setting 'size' is of type Tensor; settings identify a run"):
        run(make_federation, WithTensor(torch.zeros(2)))
    run(make_federation, WithTensor((1, "a", (2.0, None))))
    with pytest.raises(firma.BadInput, match=r"make settings the fields of a class with @dataclass\(frozen=True\)"):
        Thawed()


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("nowhere:Mine", "there is no module 'nowhere'"),
        ("fedprox:FedPro", "did you mean 'FedProx'"),
        ("fedbn:NORMS", "NORMS is of type tuple; must be a class"),
        ("fedprox:Nothing", "class 'Nothing' is unknown; choose from FedProx"),
        ("fedprox:dataclass", "must be a class"),
        ("bad", "or MODULE:CLASS of your own"),
        ("fedbn:nn.Linear", "must be a subclass of firma.Algorithm"),
        ("fedprox:FedProx(nu=1)", "setting 'nu' is unknown; choose from mu"),
        ("fedbn:FedBN(nu=1)", "FedBN has no settings; omit nu"),
        ("fedprox:FedProx(0.1)", "settings must be given by name"),
        ("fedprox:FedProx(mu=os.sep)", "settings must be given by name"),
        ("fedprox:FedProx(mu=1", "must have the form module:Class"),
        ("fedprox:", "must have the form module:Class"),
    ],
)
def test_wrong_references_are_sentences(recipes, reference, sentence):
    with pytest.raises(firma.BadInput, match=sentence):
        resolved(lookup(f"fedavg:algorithm={reference}"))


class Base(firma.Algorithm):
    """To be run with one hook changed."""


@pytest.mark.parametrize(
    ("value", "sentence"), [(3, "is of type int"), (Base, r"is a class; pass an object of it, Base\(\)")]
)
def test_wrong_objects_are_sentences(value, sentence):
    with pytest.raises(firma.BadInput, match=sentence):
        firma.run("digits", method=replace(METHODS["fedavg"], name="mine", algorithm=value))


def test_a_misspelt_hook_is_warned_of(make_federation):
    with pytest.warns(UserWarning, match="after_trainings is not a hook and is never called .did you mean"):
        run(make_federation, with_hooks(after_trainings=lambda self, one: None))


def test_a_misspelt_hook_of_a_base_class_is_warned_of(make_federation):
    base = type("Basis", (firma.Algorithm,), {"before_trainings": lambda self, one: None})
    with pytest.warns(UserWarning, match="before_trainings is not a hook and is never called .did you mean"):
        run(make_federation, type("Mine", (base,), {})())


def test_a_servers_memory_without_aggregate_is_warned_of(make_federation):
    with pytest.warns(UserWarning, match="server_memory is never used, because only aggregate reads it"):
        run(make_federation, with_hooks(server_memory=lambda self, shared: {"velocity": torch.zeros(shared)}))


@dataclass(frozen=True)
class OwnModel(firma.Algorithm):
    def memory(self, model, shared):
        return {"personal": model.clone()}


def test_clients_whose_personal_model_is_never_trained_are_announced():
    row = replace(METHODS["fedavg"], name="mine", algorithm=OwnModel())
    with pytest.warns(UserWarning, match="none of the 1 rounds .*mine tests them with personal models that they have"):
        firma.run("digits", "iid", row, clients=4, rounds=1, participation=0.5, settings={"epochs": 0})


@pytest.mark.parametrize(
    "step",
    [
        lambda self, step: step.update(step.gradient()),
        lambda self, step: step.update(step.gradient(loss=step.loss)),
        lambda self, step: step.update(step.gradient() + 0 * step.outputs().sum()),
    ],
)
def test_a_rate_that_is_too_large_is_not_blamed_on_a_local_step(make_federation, step):
    for rate in (1e30, 3e38):  # which is almost the largest float32
        assert not run(make_federation, with_hooks(local_step=step), rate=rate)[0].isfinite().all()


def test_the_command_line_shows_where_a_hook_failed(empty_folder, command):
    (empty_folder / "mine.py").write_text(
        "import firma\n\n\nclass Mine(firma.Algorithm):\n    def after_training(self, one):\n        return 1 / 0\n"
    )
    words = ["run", "--dataset", "digits", "--clients", 2, "--rounds", 1, "--set", "epochs=1"]
    code, _, said = command(*words, "--method", "fedavg:algorithm=mine:Mine")
    assert code == 2
    first, *lines = said.splitlines()
    assert first == (
        "firma: algorithm mine:Mine: after_training for client 0 in round 1 failed "
        "(ZeroDivisionError: division by zero, mine.py, line 6)"
    )
    assert any("return 1 / 0" in line for line in lines)
