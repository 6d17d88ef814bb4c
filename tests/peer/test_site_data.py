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

from .conftest import NAMES, Fixture, accept_at, free_ports
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
    accept_at(ring, [folder / name / "identity" for name in SITES])
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


def test_sites_have_no_constants(make_ring):
    with pytest.raises(BadInput, match=r"constants.*use per-client"):
        make_ring(set={"standardise": "constants"})


def test_tokens_are_not_standardised(tmp_path):
    task = {"shape": [3], "labels": list(SPECIES), "dtype": "int64"}
    with pytest.raises(BadInput, match="standardise = 'per-client' cannot be combined with dtype = 'int64'"):
        ring_of(tmp_path, task=task)
    tokens = np.arange(600).reshape(100, 6) % 50
    with pytest.raises(BadInput, match="standardise"):
        firma.run(
            (tokens, np.arange(100) % 3), "iid", "local", clients=2, model="transformer", standardise="per-client"
        )


def test_a_table_without_agreed_columns_is_not_taken_silently(tmp_path, command):
    write_tables(tmp_path)
    ring_of(tmp_path, task={"shape": [3], "labels": list(SPECIES)}, gathering=0.1)
    words = ["--data", tmp_path / "bee" / "trees.csv", "--identity", tmp_path / "bee" / "identity"]
    _, _, err = command("join", tmp_path / "ring.toml", *words, "--state", tmp_path / "state")
    assert "firma: warning: the ring file lists no columns" in err
    assert "in this order: bark, height, girth; agree on a ring file written with --columns-of" in err
    code, out, _ = command("doctor", tmp_path / "ring.toml", *words, "--wait", "0")
    assert (code, "FAIL  columns: the ring file lists no columns" in out) == (1, True), out


def test_arrays_without_names_are_told_the_agreed_order(tmp_path, command):
    ring_of(tmp_path, gathering=0.1)
    np.savez(tmp_path / "mine.npz", x=np.random.default_rng(0).normal(size=(20, 3)), y=np.array(["ash", "elm"] * 10))
    words = ["--data", tmp_path / "mine.npz", "--identity", tmp_path / "ant" / "identity"]
    _, _, err = command("join", tmp_path / "ring.toml", *words, "--state", tmp_path / "state")
    assert "make sure that they are in the order of the ring file: height, girth, bark" in err
    _, out, _ = command("doctor", tmp_path / "ring.toml", *words, "--wait", "0")
    assert "pass  columns: the columns of this site's data have no names" in out


def test_the_organisers_table_gives_the_columns_and_nothing_else(tmp_path, command):
    write_tables(tmp_path)
    for name in NAMES[:2]:
        command("init", name, f"127.0.0.1:{7001 + NAMES.index(name)}", "--identity", tmp_path / name / "identity")
    members = [word for name in NAMES[:2] for word in ("--member", tmp_path / name / "identity" / "site.toml")]
    words = [*members, "--federation", "trees", "--labels", "ash,oak"]
    table = tmp_path / "bee" / "trees.csv"
    code, out, _ = command("ring-file", tmp_path / "ring.toml", *words, "--columns-of", table)
    assert (code, "  columns: bark (number), height (number), girth (number)\n" in out) == (0, True), out
    ring = read_ring(tmp_path / "ring.toml")
    assert (ring.task.columns, ring.task.shape) == (("bark", "height", "girth"), (3,))
    cells = {cell for line in table.read_text().splitlines()[1:] for cell in line.split(",")[:-1]}
    assert not [cell for cell in cells if cell in (tmp_path / "ring.toml").read_text()]
    code, _, err = command("ring-file", tmp_path / "b.toml", *words, "--columns-of", table, "--columns", "a,b")
    assert (code, "--columns cannot be combined with --columns-of" in err) == (2, True)


def test_types_of_columns_are_agreed_and_checked(tmp_path, command):
    """Names, types and order: a site whose table has other values than agreed is told the column and the row."""
    for name in NAMES[:2]:
        command("init", name, f"127.0.0.1:{7001 + NAMES.index(name)}", "--identity", tmp_path / name)
    members = [word for name in NAMES[:2] for word in ("--member", tmp_path / name / "site.toml")]
    words = [*members, "--federation", "trees", "--labels", "ash,oak"]
    rows = [(age, age / 3, age % 2, "ash" if age % 3 else "oak") for age in range(20, 60)]
    table = tmp_path / "mine.csv"

    def write(changed=rows):
        table.write_text("age,dose,smoker,label\n" + "".join(f"{a},{d:.3f},{s},{y}\n" for a, d, s, y in changed))

    write()
    code, out, err = command("ring-file", tmp_path / "a.toml", *words, "--columns-of", table)
    assert (code, "columns: age (integer), dose (number), smoker (binary)\n" in out) == (0, True), err
    named = ["--columns", "age:integer,dose:number,smoker:binary"]
    assert command("ring-file", tmp_path / "ring.toml", *words, *named)[0] == 0
    ring = read_ring(tmp_path / "ring.toml")
    assert (ring.task, ring.digest) == (read_ring(tmp_path / "a.toml").task, read_ring(tmp_path / "a.toml").digest)
    code, _, err = command("ring-file", tmp_path / "b.toml", *words, "--columns", "age:integer,dose")
    assert (code, "'dose' has no type, but others have" in err) == (2, True)
    accept_at(ring, [tmp_path / name for name in NAMES[:2]])
    site = ["--data", table, "--identity", tmp_path / "ant"]
    _, out, _ = command("doctor", tmp_path / "ring.toml", *site, "--wait", "0")
    assert "pass  columns: matched by name, types as agreed: age, dose, smoker" in out
    for place, value, says in ((0, 20.5, "'age' is integer .* row .* has 20.5"), (2, 2, "'smoker' is binary .* has 2")):
        write([tuple(value if n == place else each for n, each in enumerate(rows[0])), *rows[1:]])
        code, _, err = command("join", tmp_path / "ring.toml", *site, "--state", tmp_path / "state")
        assert (code, bool(re.search(says, err))) == (2, True), err
        assert not (tmp_path / "state").exists()
    assert "types" not in ring_toml(ring_of(tmp_path / "plain")), "a ring file without types is as it was"


def test_a_site_with_one_class_takes_part(tmp_path):
    """Cat has oaks alone; the others have three and two kinds. The same classes, joined, are what all learn."""
    write_tables(tmp_path)
    lines = (tmp_path / "cat" / "trees.csv").read_text().splitlines()
    (tmp_path / "cat" / "trees.csv").write_text("\n".join(line for line in lines if not line.endswith("yew")) + "\n")
    ring = ring_of(tmp_path)
    assert set(load_own(str(tmp_path / "cat" / "trees.csv"), ring.task).y_train) == {SPECIES.index("oak")}
    outcomes = run_threads(Tables(tmp_path, ring, tmp_path / "ring.toml"))
    for outcome in outcomes.values():
        assert len(outcome.history) == 4
        assert torch.isfinite(outcome.parameters).all()
    assert outcomes[0].history[-1] > 0.9, "those that have several learn as before"
    with pytest.raises(BadInput, match="at least two classes are required"):
        load_dataset(tmp_path / "cat" / "trees.csv")  # alone it cannot be learnt from


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (1e300, r"value 2 of training row 4 is inf; inputs must be finite and at most 1e\+18"),
        (1e19, r"value 2 of training row 4 is 1e\+19; inputs must be finite"),
        (float("nan"), "contains NaN or infinity in 1 rows"),
    ],
)
def test_absurd_inputs_are_refused_before_anything_is_sent(tmp_path, command, value, says):
    ring_of(tmp_path, task={"shape": [3], "labels": list(SPECIES)}, gathering=0.1)
    x = np.random.default_rng(0).normal(size=(20, 3))
    x[3, 1] = value
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(20) % 2, x_test=x[5:9], y_test=np.arange(4) % 2)
    stored = np.load(tmp_path / "mine.npz")
    np.savez(tmp_path / "mine.npz", **{name: stored[name] for name in ("x", "x_test")},
             y=np.array(["ash", "elm"] * 10), y_test=np.array(["ash", "elm"] * 2))  # fmt: skip
    words = ["--data", tmp_path / "mine.npz", "--identity", tmp_path / "ant" / "identity"]
    state = tmp_path / "state"
    code, _, err = command("join", tmp_path / "ring.toml", *words, "--state", state)
    assert (code, bool(re.search(says, err)), state.exists()) == (2, True, False), err
    code, out, _ = command("doctor", tmp_path / "ring.toml", *words, "--wait", "0")
    assert (code, bool(re.search("FAIL  data: .*" + says, out))) == (1, True), out


def test_doctor_looks_at_the_data(tmp_path, command):
    ring_of(tmp_path, set={"hidden": 32})
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)) * np.array([1, 1, 1e5])
    y = np.array(["ash", "oak"] * 20)
    np.savez(tmp_path / "mine.npz", x=x, y=y, x_test=np.concatenate([x[:3], x[:4] + 1]), y_test=y[:7])
    words = ["--data", tmp_path / "mine.npz", "--identity", tmp_path / "ant" / "identity", "--wait", "0"]
    code, out, _ = command("doctor", tmp_path / "ring.toml", *words)
    assert code == 1
    assert "pass  data: 40 samples to train, 7 to test, inputs of shape 3\n" in out
    assert "pass  labels: ash 20, oak 20; none of elm, yew\n" in out
    assert re.search(r"FAIL  scale: inputs from -[\d.e+]+ to [\d.e+]+; too large to train on", out)
    assert "pass  data: warning: dataset mine.npz: features are of very different scales" in out
    assert "warning: 3 of 7 test rows are also training rows" in out
    write_tables(tmp_path)
    table = ["--data", tmp_path / "ant" / "trees.csv", *words[2:]]
    _, out, _ = command("doctor", tmp_path / "ring.toml", *table)
    assert "pass  columns: matched by name: height, girth, bark\n" in out
    assert "pass  duplicates: no test row is also a training row\n" in out
