"""What real sites have: tables with words as labels, classes that others lack, unequal sizes, other column orders."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import firma
from firma.data.dataset import load_dataset
from firma.data.standardise import standardiser_from_json
from firma.data.user_arrays import natural
from firma.errors import BadInput
from firma.peer.identity import make_identity
from firma.peer.ring_file import checked, read_ring, ring_toml
from firma.peer.runtime.local_training import load_own

from .conftest import NAMES, Fixture, free_ports
from .test_node import run_threads, simulated

SPECIES = ("ash", "elm", "oak", "yew")
COLUMNS = ("height", "girth", "bark")
# Rows, species and order of the columns of each site.
SITES = {
    "ant": (400, ("oak", "ash", "elm"), (0, 1, 2)),
    "bee": (60, ("ash", "oak"), (2, 0, 1)),
    "cat": (15, ("oak", "yew"), (1, 0, 2)),
}
# The digest of the ring file that the fuzzer uses, as version 0.2.0 computed it.
KNOWN_DIGEST = "ef32ee6501e52f50577b6bbad17316d9dc14b1db905c7256600844579ff46d8d"


def write_tables(folder):
    """A CSV for each site: features of very different scales, as tables have them."""
    rng = np.random.default_rng(8)
    for name, (rows, species, order) in SITES.items():
        lines = [",".join([*(COLUMNS[place] for place in order), "label"])]
        for row in range(rows):
            kind = species[row % len(species)]
            values = SPECIES.index(kind) * np.array([1, 0.001, 900]) + rng.normal(size=3) * np.array([0.2, 2e-4, 100])
            lines.append(",".join([*(f"{values[place]:.6f}" for place in order), kind]))
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "trees.csv").write_text("\n".join(lines) + "\n")


def ring_of(folder, **changes):
    sites = []
    for name, port in zip(SITES, free_ports(len(SITES)), strict=True):
        certificate = make_identity(folder / name / "identity", name).certificate.decode()
        sites.append({"name": name, "address": f"127.0.0.1:{port}", "certificate": certificate})
    task = {"shape": [3], "labels": list(SPECIES), "columns": list(COLUMNS)}
    ring = checked({
        "federation": "trees", "method": "fibfl++", "rounds": 4, "patience": 30.0, "gathering": 60.0, "task": task,
        "members": sites, "set": {"extractor_epochs": 10, "hidden": 32, "embedding": 16, "standardise": "per-client"},
    } | changes)  # fmt: skip
    (folder / "ring.toml").write_text(ring_toml(ring))
    return ring


@dataclass(frozen=True)
class Tables(Fixture):
    def data(self, number):
        return str(self.folder / NAMES[number] / "trees.csv")


def test_three_sites_with_tables_of_their_own_equal_the_simulation(tmp_path):
    write_tables(tmp_path)
    ring = ring_of(tmp_path)
    made = Tables(tmp_path, ring, tmp_path / "ring.toml")
    outcomes = run_threads(made)
    owns = [load_own(str(tmp_path / name / "trees.csv"), ring.task) for name in SITES]

    def joined(part):
        return np.concatenate([getattr(own, part) for own in owns])

    words = np.array(SPECIES)
    whole = natural(
        (joined("x_train"), words[joined("y_train")], joined("x_test"), words[joined("y_test")]),
        np.repeat(list(SITES), [len(own.y_train) for own in owns]),
        np.repeat(list(SITES), [len(own.y_test) for own in owns]),
    )
    result = firma.run(whole, method=ring.method, rounds=ring.rounds, settings=dict(ring.set), audit=True)
    for number in range(len(SITES)):
        np.testing.assert_allclose(outcomes[number].history, result.history[:, number], atol=1e-12)
        torch.testing.assert_close(outcomes[number].parameters, result.parameters[number], rtol=0, atol=0)
        kept = standardiser_from_json((made.state(number) / "standardiser.json").read_text())
        assert np.array_equal(kept.mean, result.standardisers[number].mean)
    assert result.history[-1, 0] > 0.9


def test_nothing_of_the_statistics_is_sent_and_bytes_are_standardised_too(make_ring):
    """Digits are bytes with a scale; the messages have the same sizes as without standardisation."""
    settings = {"extractor_epochs": 2, "hidden": 32, "embedding": 16}
    made = make_ring("fibfl", 3, 2, "dir-0.5", set=settings | {"standardise": "per-client"})
    outcomes = run_threads(made)
    passed = simulated(made, "dir-0.5", audit=True)
    for number, outcome in outcomes.items():
        torch.testing.assert_close(outcome.parameters, passed.parameters[number], rtol=0, atol=0)
    plain = firma.run("digits", "dir-0.5", "fibfl", clients=3, rounds=2, settings=settings)
    assert passed.sent_bytes == plain.sent_bytes
    assert not np.array_equal(plain.history, passed.history)


def test_columns_are_matched_by_name(tmp_path):
    write_tables(tmp_path)
    task = ring_of(tmp_path).task
    own = load_own(str(tmp_path / "bee" / "trees.csv"), task)
    assert own.columns == COLUMNS
    plain = load_dataset(tmp_path / "bee" / "trees.csv")
    assert np.array_equal(own.x_train[:, 2], plain.x_train[:, 0])
    path = tmp_path / "other.csv"
    table = (tmp_path / "bee" / "trees.csv").read_text()
    path.write_text(table.replace("girth", "width"))
    with pytest.raises(
        BadInput, match="lacks column 'girth', which the ring file requires; it lists height, girth, bark"
    ):
        load_own(str(path), task)
    path.write_text("\n".join(f"{line},{n or 'id'}" for n, line in enumerate(table.splitlines())))
    with (
        pytest.warns(UserWarning, match="'id' seems to number the rows"),
        pytest.raises(BadInput, match="has column 'id', which is not in the ring file"),
    ):
        load_own(str(path), task)


@pytest.mark.filterwarnings("always")
def test_a_site_without_standardisation_is_warned(tmp_path, command):
    write_tables(tmp_path)
    ring_of(tmp_path, set={"hidden": 32}, gathering=0.1)
    words = ["join", tmp_path / "ring.toml", "--data", tmp_path / "ant" / "trees.csv"]
    home = tmp_path / "ant"
    _, _, err = command(*words, "--identity", home / "identity", "--state", home / "state")
    assert re.search("column 'bark' is .*, that of column 'girth' .*standardise=per-client", err)


def test_the_ring_file_states_the_columns_and_older_digests_stay(tmp_path, command):
    known = read_ring(Path(__file__).parent / "fuzz_ring.toml")
    assert known.digest.hex() == KNOWN_DIGEST
    assert "columns" not in ring_toml(known)
    for name in NAMES[:2]:
        command("init", name, f"127.0.0.1:{7001 + NAMES.index(name)}", "--identity", tmp_path / name)
    members = [word for name in NAMES[:2] for word in ("--member", tmp_path / name / "site.toml")]
    words = [*members, "--federation", "trees", "--labels", "ash,oak", "--columns", "height, girth,bark"]
    code, out, _ = command("ring-file", tmp_path / "ring.toml", *words, "--set", "standardise=per-client")
    assert code == 0
    assert "columns: height, girth, bark\n" in out
    assert "each site standardises its inputs" in out
    ring = read_ring(tmp_path / "ring.toml")
    assert (ring.task.columns, ring.task.shape, ring.standardise) == (("height", "girth", "bark"), (3,), True)
    code, _, err = command("ring-file", tmp_path / "b.toml", *words, "--shape", "4")
    assert (code, "3 columns for inputs of shape (4,)" in err) == (2, True)
    code, _, err = command("ring-file", tmp_path / "b.toml", *words[:-1], "a,a")
    assert (code, "columns must not repeat" in err) == (2, True)


def test_tokens_are_not_standardised(tmp_path):
    task = {"shape": [3], "labels": list(SPECIES), "dtype": "int64"}
    with pytest.raises(BadInput, match="standardise = 'per-client' cannot be combined with dtype = 'int64'"):
        ring_of(tmp_path, task=task)
    tokens = np.arange(600).reshape(100, 6) % 50
    with pytest.raises(BadInput, match="standardise"):
        firma.run(
            (tokens, np.arange(100) % 3), "iid", "local", clients=2, model="transformer", standardise="per-client"
        )
