"""Grid files: which runs they mean, what a run is called, and when two runs are the same."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from firma.errors import BadInput
from firma.methods import METHODS
from firma.paper.grid import Choice
from firma.paper.grid import cells as paper_cells
from firma.sweep.cells import as_options, key
from firma.sweep.grid import EXECUTION, expand, fingerprint, read_grid, select
from firma.sweep.store import read_cells

EVIDENCE = Path(__file__).parents[2] / "evidence"


def grid(tmp_path, text, **changes):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return read_grid(path, changes)


def names(found):
    return [cell.name for cell in found.cells]


def test_lists_are_axes_and_every_combination_is_run_seed_by_seed(tmp_path):
    found = grid(
        tmp_path, 'scenario = ["iid", "dir-0.1"]\nmethod = ["local", "fedavg"]\nseeds = 2\nset = {rate = [0.1, 1]}'
    )
    expected = product((0, 1), ("iid", "dir-0.1"), ("local", "fedavg"), (0.1, 1))
    assert [(c.seed, c.scenario, c.method, c.settings["rate"]) for c in found.cells] == list(expected)
    assert names(found)[0] == "method=local scenario=iid rate=0.1 seed=0"
    assert {(c.dataset, c.clients, c.rounds, c.preset) for c in found.cells} == {("digits", 5, 10, "recommended")}


def test_grid_tables_are_products_of_their_own_on_top_of_what_they_share(tmp_path):
    found = grid(
        tmp_path,
        """
        rounds = 2
        seeds = [3, 7]
        [set]
        batch = 32
        rate = 0.5
        [[grid]]
        method = "fedavg"
        [[grid]]
        method = ["fibfl", "fibfl++"]
        set = {rate = [0.001, 0.002]}
        """,
    )
    runs = {(c.seed, c.method, c.settings["rate"], c.settings["batch"]) for c in found.cells}
    assert runs == {(seed, "fedavg", 0.5, 32) for seed in (3, 7)} | {
        (seed, method, rate, 32) for seed in (3, 7) for method in ("fibfl", "fibfl++") for rate in (0.001, 0.002)
    }
    assert len(found.cells) == len(runs)


def test_one_run_needs_no_list(tmp_path):
    assert names(grid(tmp_path, "")) == ["method=frame seed=0"]
    assert (
        len(grid(tmp_path, 'method = "paper"').cells) == len(grid(tmp_path, 'method = ["paper", "local"]').cells) == 7
    )
    assert len(grid(tmp_path, 'method = "all"').cells) == len(METHODS) > 7


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("seeds = 3", [0, 1, 2]), ("seed = 5\nseeds = 2", [5, 6]), ("seeds = [4, 1]", [4, 1]), ("seed = [4, 1]", [4, 1])],
)
def test_seeds_are_a_number_or_a_list(tmp_path, text, seeds):
    assert [cell.seed for cell in grid(tmp_path, text).cells] == seeds


def test_options_of_the_command_line_replace_those_of_the_file_everywhere(tmp_path):
    found = grid(
        tmp_path, "seeds = 5\n[[grid]]\nrounds = 3\nmethod = 'local'\n[[grid]]\nseeds = [7]", rounds=1, seeds=1
    )
    assert [(cell.rounds, cell.seed) for cell in found.cells] == [(1, 0), (1, 0)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("metod = 'local'", "option 'metod' is unknown .did you mean 'method'"),
        ("[[grid]]\nout = 'x'", "option 'out' is unknown"),
        ("method = ['local', 'fedavgg']", "did you mean 'fedavg'"),
        ("set = {rat = 1}", "did you mean 'rate'"),
        ("set = {rate = [0.1, -1]}", "rate = -1: must be greater than 0"),
        ("scenario = ['iid', 'dirr']", "scenario 'dirr' is invalid"),
        ("preset = ['paper', 'papers']", "preset = 'papers'"),
        ("rounds = [1, 0]", "rounds = 0: must be at least 1"),
        ("method = []", r"method = \[\]: must have at least one value"),
        ("seeds = []", r"seeds = \[\]"),
        ("seeds = 0", "seeds = 0"),
        ("seed = 1\nseeds = [1, 2]", "cannot be combined with a list"),
        ("dataset = ['digits', 'none.csv']", "none.csv': no such file"),
        ("dataset = 'digit'", "did you mean 'digits'"),
        ("engine = ['simulation', 'ray']", "engine: must be the same for all runs"),
        ("engine = 'spark'", "engine = 'spark'"),
        ("address = 'here:1'", "--address requires --engine ray"),
        ("engine = 'ray'\nworkers = 2\ndevice = 'cuda'", "--engine ray cannot be combined with workers, device"),
        ("grid = 3", "one or more tables, each below a line"),
        ("out = 3", "out = 3: must be a folder"),
        ("wire = 'int9'", "wire = 'int9'"),
        ("rounds =", "not valid TOML"),
        ("attack = ['none', 'noise']\nattackers = [0, 1]", r"honest runs in a \[\[grid\]\] table without either key"),
        ("attack = 'noise'", "an attack requires --attackers 1 or more"),
    ],
)
def test_mistakes_are_found_before_anything_is_run(tmp_path, text, says):
    with pytest.raises(BadInput, match=says) as error:
        grid(tmp_path, text)
    assert "grid.toml" in str(error.value)


def test_no_drift_is_a_value_of_its_axis(tmp_path):
    cells = grid(tmp_path, 'method = "fedavg"\ndrift = ["none", "label-shift"]').cells
    assert [cell.name for cell in cells] == [
        "method=fedavg drift=none seed=0", "method=fedavg drift=label-shift seed=0",
    ]  # fmt: skip
    (plain,) = grid(tmp_path, 'method = "fedavg"').cells
    assert key(cells[0]) == key(plain)


def test_runs_that_are_the_same_are_run_once_and_said(tmp_path):
    found = grid(tmp_path, 'preset = "paper"\nmethod = ["fibfl+", "fibfl:gate=yes"]\nset = {rate = [0.01, 0.1]}')
    assert names(found) == ["method=fibfl+ rate=0.01 seed=0", "method=fibfl+ rate=0.1 seed=0"]
    assert found.same == [(name.replace("fibfl+", "fibfl:gate=yes"), name) for name in names(found)]


def test_words_select_runs(tmp_path):
    cells = grid(tmp_path, 'method = ["fibfl", "fibfl+", "local"]\nseeds = 11\nset = {rate = [0.1, 0.01]}').cells
    assert {cell.method for cell in select(cells, "method=fibfl")} == {"fibfl"}
    assert {cell.method for cell in select(cells, "method=fibfl*")} == {"fibfl", "fibfl+"}
    assert {(cell.method, cell.seed) for cell in select(cells, "seed=1 method=local")} == {("local", 1)}
    assert {cell.settings["rate"] for cell in select(cells, "rate=0.0*")} == {0.01}
    assert len(select(cells, "*")) == len(cells)
    assert {cell.method for cell in select(cells, "local")} == {"local"}
    with pytest.raises(BadInput, match=r"matches no run; runs are called 'method=fibfl rate=0\.1 seed=0'"):
        select(cells, "method=fedavg")


def test_a_run_of_the_paper_has_the_papers_key(tmp_path):
    """What was run for the paper is found by a sweep with the same settings, and the other way round."""
    found = grid(
        tmp_path,
        'preset = ["published", "paper"]\nscenario = ["iid", "dir-0.1"]\nmethod = ["local", "fibfl++"]\nseeds = 2',
    )
    theirs = {(key(cell), cell.preset) for cell in paper_cells(Choice(["digits"], seeds=2))}
    ours = {(key(cell), cell.preset) for cell in found.cells}
    assert len(ours) == 16
    assert ours <= theirs
    assert ours <= {(cell.key, cell.preset) for cell in read_cells(EVIDENCE)}


def test_what_does_not_change_results_is_no_part_of_the_key(tmp_path):
    plain = grid(tmp_path, "").cells[0]
    how = grid(tmp_path, 'workers = 1\ncheckpoint = "state"\nrecover = 2\nengine = "simulation"')
    assert key(how.cells[0]) == key(plain)
    assert how.execution == {"workers": 1, "checkpoint": "state", "recover": 2, "engine": "simulation"}
    assert set(how.execution) <= set(EXECUTION)
    for text in ('wire = "int8"', 'backend = "autograd"', "audit = true", "clients = 4", "set = {clip = 1}"):
        assert key(grid(tmp_path, text).cells[0]) != key(plain)
    assert key(grid(tmp_path, 'wire = "float32"\nbackend = "auto"\naudit = false').cells[0]) == key(plain)


def data(path, seed=0, clients=None):
    rng = np.random.default_rng(seed)
    arrays = {"x": rng.normal(size=(80, 4)).astype(np.float32), "y": rng.integers(0, 3, 80)}
    np.savez(path, **arrays, **({} if clients is None else {"client": rng.integers(0, clients, 80)}))
    return path


def test_own_data_are_known_by_their_content(tmp_path):
    def one(path):
        (cell,) = expand({"dataset": str(path), "method": "local"}, {}).cells
        return cell

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = one(data(tmp_path / "a" / "mine.npz"))
    moved = one(data(tmp_path / "b" / "mine.npz"))
    assert key(first) == key(moved)
    changed = one(data(tmp_path / "a" / "mine.npz", seed=1))
    assert key(first) != key(changed)
    assert first.data == moved.data != changed.data
    named = one(data(tmp_path / "named.npz", clients=3))
    assert (named.scenario, named.clients, named.rounds) == ("natural", 3, 30)
    assert (first.scenario, first.clients) == ("skew-1", 10)


def test_a_folder_of_data_is_known_by_its_files(tmp_path):
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "cat" / "1.png").write_bytes(b"1")
    before = fingerprint(str(tmp_path / "images"))
    (tmp_path / "images" / "cat" / "1.png").rename(tmp_path / "images" / "cat" / "2.png")
    assert before != fingerprint(str(tmp_path / "images")) != ""
    assert fingerprint("digits") == fingerprint("nowhere.csv") == ""


MODEL = """
from torch import nn

def build(width=8):
    return nn.Linear(64, width), nn.Linear(width, 10)
"""


def test_models_of_your_own_are_axes_and_known_by_their_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models_of_a_grid.py").write_text(MODEL)
    text = 'model = "models_of_a_grid:build"\nmodel-set = {width = [4, 8]}\nclients = 2\nrounds = 1'
    found = grid(tmp_path, text)
    assert names(found) == ["method=frame model_set.width=4 seed=0", "method=frame model_set.width=8 seed=0"]
    before = [key(cell) for cell in found.cells]
    assert len(set(before)) == 2
    assert list(found.cells[0].code) == ["models_of_a_grid.py"]
    (tmp_path / "models_of_a_grid.py").write_text(MODEL + "# changed\n")
    assert set(before).isdisjoint(key(cell) for cell in grid(tmp_path, text).cells)
    both = grid(tmp_path, 'participation = [1.0, 0.5]\n[[grid]]\nmodel = ["mlp", "cnn"]\nmethod = "fedavg"')
    assert {(cell.options.get("model", "mlp"), cell.options.get("participation", 1.0)) for cell in both.cells} == {
        ("mlp", 1.0), ("cnn", 1.0), ("mlp", 0.5), ("cnn", 0.5),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model = 'cnnn'", "did you mean 'cnn'"),
        ("model = 'no_such_module_anywhere:build'", "no_such_module_anywhere"),
        ("model = 'cnn'\nmodel_set = {widht = 3}", "did you mean 'width'"),
        ("participation = [0.5, 2]", "participation = 2: must be at most 1"),
    ],
)
def test_mistakes_in_models_are_found_before_anything_is_run(tmp_path, text, says):
    with pytest.raises(BadInput, match=says):
        grid(tmp_path, text)


def test_a_cell_as_options_is_the_cell(tmp_path):
    (cell,) = grid(tmp_path, 'method = "fedavg"\nwire = "int8"\nseed = 3\nset = {tau = 0.2}').cells
    (again,) = expand(as_options(cell), {}).cells
    assert again == cell
