"""Small federations, the command line, folders with code of one's own, child processes; which tests run in parallel."""

import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

from firma.algorithms.catalogue import algorithm_of
from firma.cli import main
from firma.engines.engine import Federation
from firma.method_lookup import lookup
from firma.methods import PAPER_NUMBERS
from firma.models import SplitModel, mlp
from firma.settings import Hyper
from firma.training.local_step import ClientData
from firma.training.private_parameters import with_private
from tests.own_methods import RECIPES

# A process that a script starts in the background ignores Ctrl-C, and its children inherit that. Tests interrupt some
# of theirs, so Ctrl-C gets a handler here: children do not inherit handlers, they start with the default action.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Other tests run at the same time: how long one example takes says nothing about the code.
hypothesis.settings.register_profile("parallel", deadline=None)
hypothesis.settings.load_profile("parallel")

# With threads of its own torch waits, spinning, for cores that other programs have: minutes instead of seconds. And
# members of a ring that run as threads of this process share the count, which trainers set and put back.
torch.set_num_threads(1)

# With `pytest -n`, all tests of a group run in one worker, one after another; every other test runs in any worker.
GROUPS = {
    # Real processes that give each other up after a second or two: two rings at a time would slow each other down.
    "rings": (
        "peer/test_consent.py",
        "peer/test_healing.py",
        "peer/test_networks.py",
        "peer/test_operators.py",
        "peer/test_processes.py",
        "peer/test_strangers.py",
        "peer/test_tutorial.py",
        "peer/test_upkeep.py",
    ),
    # They share one cluster, which takes ten seconds to start.
    "ray": ("engines/test_ray.py", "engines/test_ray_commands.py", "engines/test_ray_nodes.py"),
    # They share one page, which takes five seconds to render, or one browser.
    "browser": ("report/test_browser.py", "page/test_live_browser.py"),
}
# `make test-flower` runs them in an environment of its own, which has Flower.
collect_ignore = [] if find_spec("flwr") else ["flower"]
FEATURES, CLASSES = 12, 4
SIZES = (37, 64, 21, 50, 16, 33)  # unequal, with short last batches


def toy_data(clients: int, noisy: tuple[int, ...] = ()) -> list[ClientData]:
    """Gaussian blobs, one a class; the labels of `noisy` clients are chance."""
    rng = np.random.default_rng(7)
    centres = rng.normal(size=(CLASSES, FEATURES))
    data = []
    for client in range(clients):
        size = SIZES[client % len(SIZES)]
        y = rng.integers(0, CLASSES, size)
        x = centres[y] + 0.7 * rng.normal(size=(size, FEATURES))
        if client in noisy:
            y = rng.integers(0, CLASSES, size)
        inputs, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
        data.append(ClientData(inputs, labels, inputs[:9], labels[:9]))
    return data


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):  # type: ignore[no-untyped-def]
    """Distribute tests by GROUPS; xdist's own mark for groups has no effect since pytest 9.2 (pytest-xdist#1386)."""
    if config.getvalue("dist") != "load":  # asked for another way
        return None
    from xdist.scheduler import LoadScopeScheduling

    here = Path(__file__).parent
    missing = [file for files in GROUPS.values() for file in files if not (here / file).exists()]
    if missing:
        raise pytest.UsageError(f"GROUPS in {__file__} names files that do not exist: {', '.join(missing)}")
    group_of = {f"{here.name}/{file}": group for group, files in GROUPS.items() for file in files}

    class Grouped(LoadScopeScheduling):
        def _split_scope(self, nodeid):  # type: ignore[no-untyped-def]
            return group_of.get(nodeid.partition("::")[0], nodeid)

    return Grouped(config, log)


Make = Callable[..., Federation]


@pytest.fixture
def make_federation() -> Make:
    """`make(method, clients, rounds, noisy=(), order=None, **changes of Hyper)`."""

    def make(method, clients=3, rounds=3, noisy=(), order=None, seed=5, backend="auto", **changes):  # type: ignore[no-untyped-def]
        base = {
            "batch": 16, "epochs": 2, "head_epochs": 1, "extractor_epochs": 2, "rate": 0.01, "inner_steps": 2,
            "schedule": "constant", "weight_decay": 0.0,  # for these two: test_rates.py and test_rates_of_rows.py
        }  # fmt: skip
        row = lookup(method) if isinstance(method, str) else method
        special = {name: value for name, value in PAPER_NUMBERS.get(row.base, {}).items() if name not in base}
        hyper = Hyper(**(base | special | changes))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            model = SplitModel(*mlp((FEATURES,), CLASSES, 16, 8))
        data = toy_data(clients, noisy)
        ring = tuple(order) if order is not None else tuple(range(clients))
        models = [with_private(model, row, algorithm_of(row, hyper))]
        return Federation(row, hyper, rounds, seed, ring, data, models, torch.device("cpu"), backend)

    return make


@pytest.fixture
def command(monkeypatch, capsys):  # type: ignore[no-untyped-def]
    """`command(*words)` runs `firma` with these words and gives (exit code, stdout, stderr).

    What it says does not depend on how long it takes: no line of progress before ten minutes.
    """
    monkeypatch.setattr("firma.progress.FIRST", 600.0)

    def call(*words):  # type: ignore[no-untyped-def]
        monkeypatch.setattr(sys, "argv", ["firma", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """An empty current folder, whose modules are forgotten afterwards."""
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that is edited within a second is read again
    yield tmp_path
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def recipes(empty_folder):
    """The recipes for methods in the current folder."""
    for path in RECIPES.glob("*.py"):
        (empty_folder / path.name).write_text(path.read_text())
    return empty_folder


@pytest.fixture
def start():
    """`start(running(command, ...))` is a process that ends with the test, whatever happens in it."""
    with ExitStack() as processes:
        yield processes.enter_context
