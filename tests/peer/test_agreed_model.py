"""Models on a real ring: built in or by reference, compared with the ring file before anything is run or sent."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import firma
from firma.errors import BadInput
from firma.peer.agreed_model import blank_model, stated
from firma.peer.doctor import probe
from firma.peer.ring_file import NEUTRAL_TASK, checked, read_ring, ring_toml
from firma.peer.runtime.audit_log import audit
from firma.peer.runtime.local_training import LocalSite, load_own
from tests.own_models import forget, modules_of, write_models

from .test_node import run_threads

FILE_OF_0_2 = Path(__file__).parent / "fuzz_ring.toml"
EPOCHS = {"extractor_epochs": 1}


@pytest.fixture
def folder(tmp_path):
    with modules_of(write_models(tmp_path)) as place:
        yield place


def task(**more):
    """The task of a new ring file on digits."""
    return stated({"shape": [8, 8], "labels": list("0123456789"), "scale": 1 / 16} | more, seed=0)


def own(**more):
    return task(model="mynet:whole", head="fc", **more)


def test_a_ring_file_of_version_0_2_keeps_its_digest():
    """As version 0.2.0 computed it; members of a ring compare nothing else."""
    ring = read_ring(FILE_OF_0_2)
    assert ring.digest.hex() == "ef32ee6501e52f50577b6bbad17316d9dc14b1db905c7256600844579ff46d8d"
    assert not set(ring.task.stable()) & set(NEUTRAL_TASK)
    assert not any(name in ring_toml(ring) for name in NEUTRAL_TASK)


def test_a_ring_file_holds_reference_parameters_layout_and_hashes(make_ring, folder):
    made = make_ring("fibfl", 2, 1, task=own(model_set={"width": "12"}), set=EPOCHS)
    found = read_ring(made.path)
    assert found == made.ring
    assert found.digest == made.ring.digest
    assert found.task.model_set == {"width": 12}
    assert found.task.layout == {
        "extractor.body.1.weight": (12, 64), "extractor.body.1.bias": (12,), "extractor.body.3.weight": (12,),
    }  # fmt: skip
    assert found.task.files == {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("layers.py", "mynet.py")
    }
    for change in ({"files": {}}, {"layout": {}}, {"head": "body"}, {"model_set": {"width": 13}}):
        changed = found.task.model_copy(update=change)
        assert found.model_copy(update={"task": changed}).digest != found.digest


@pytest.mark.parametrize(
    ("task", "settings", "says"),
    [
        ({"model": "resnett"}, {}, "did you mean 'resnet'?"),
        ({"model": "mynet:build"}, {}, "requires the hashes of its files and its layout"),
        ({"model": "cnn"}, {"hidden": 8}, "setting 'hidden' belongs to the built-in mlp"),
        ({"model": "mlp", "model_set": {"hidden": 8}}, {}, "belongs in [set]"),
        ({"model": "cnn", "model_set": {"a": float("nan")}}, {}, "finite"),
        ({"model": "cnn", "model_set": {"a": [1, {}]}}, {}, "must be a number, a string"),
        ({"dtype": "int8"}, {}, "float32' or 'int64'"),
        ({"files": {"a.py": "xyz"}}, {}, "files"),
    ],
)
def test_a_ring_file_whose_model_cannot_be_is_one_sentence(make_ring, task, settings, says):
    made = make_ring("fibfl", 2, 1)
    values = made.ring.model_dump()
    with pytest.raises(BadInput) as caught:
        checked(values | {"task": values["task"] | task, "set": settings})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def findings(made, model=None):
    return {each.about: each for each in probe(made.ring, made.identity(0), None, 0.0, model)}


def test_the_doctor_names_the_file_that_differs(make_ring, folder):
    made = make_ring("fibfl", 2, 1, task=own(), set=EPOCHS)
    assert findings(made, "mynet:whole")["model"].passed
    assert "2 files" in findings(made, "mynet:whole")["model"].says
    asked = findings(made)["model"]
    assert not asked.passed
    assert "asks this site to run the code mynet:whole; if you trust it, pass --model mynet:whole" in asked.says
    assert "not 'other:build'" in findings(made, "other:build")["model"].says
    forget(folder)
    before = hashlib.sha256((folder / "layers.py").read_bytes()).hexdigest()
    (folder / "layers.py").write_text((folder / "layers.py").read_text() + "raise SystemExit('it must not be run')\n")
    after = hashlib.sha256((folder / "layers.py").read_bytes()).hexdigest()
    found = findings(made, "mynet:whole")["model"]
    assert not found.passed
    assert f"layers.py differs (sha256 {after[:12]}… here, {before[:12]}… in the ring file)" in found.says
    assert "mynet.py" not in found.says
    (folder / "layers.py").unlink()
    assert "layers.py is missing here" in findings(made, "mynet:whole")["model"].says
    (folder / "mynet.py").unlink()
    assert "there is no module 'mynet'" in findings(made, "mynet:whole")["model"].says


def test_join_compares_before_anything_is_sent(command, make_ring, folder):
    made = make_ring("fibfl", 2, 1, task=own(), set=EPOCHS)
    words = ["join", made.path, "--data", made.data(0), "--identity", made.identity(0), "--state", folder / "state"]
    code, _, err = command(*words)
    assert (code, err.count("\n"), "pass --model mynet:whole" in err) == (2, 1, True), err
    forget(folder)
    (folder / "mynet.py").write_text((folder / "mynet.py").read_text() + "\n")
    code, _, err = command(*words, "--model", "mynet:whole")
    assert (code, err.count("\n"), "mynet.py differs" in err) == (2, 1, True), err
    assert not (folder / "state").exists()


def test_tensors_and_frozen_weights_must_be_the_agreed_ones(make_ring, folder):
    """The same files may build another model: from a weights file, or with another version of a library."""
    made = make_ring("fibfl", 2, 1, task=own(), set=EPOCHS)

    def site(agreed, **change):
        ring = agreed.ring.model_copy(update={"task": agreed.ring.task.model_copy(update=change)})
        LocalSite(ring, 0, load_own(agreed.data(0), ring.task), torch.device("cpu")).close()

    site(made)
    with pytest.raises(BadInput, match=r"body.1.weight has shape \(9, 64\); expected \(8, 64\)"):
        site(made, model_set={"width": 9})
    with pytest.raises(BadInput, match=r"tensor extractor\.old of shape \(3,\) is missing"):
        site(made, layout={**made.ring.task.layout, "extractor.old": (3,)})
    adapted = checked(made.ring.model_dump() | {"task": task(model="adapter:build")}).task.model_dump()
    assert adapted["frozen"]
    site(made, **adapted)
    with pytest.raises(BadInput, match="its frozen parameters have other values"):
        site(made, **adapted | {"model_set": {"weights": 2.0}})


def simulated(made, dataset, scenario, audited=True, **model):
    ring = made.ring
    return firma.run(
        dataset, scenario, ring.method, clients=len(ring.members), rounds=ring.rounds, seed=ring.seed,
        settings=dict(ring.set), audit=audited, **model,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("agreed", "model"),
    [
        (own, {"model": "mynet:whole", "head": "fc"}),
        (
            lambda: task(model="cnn", model_set={"width": 4, "depth": 2}),
            {"model": "cnn", "model_set": {"width": 4, "depth": 2}},
        ),
    ],
)
def test_members_train_any_model_as_the_simulation_does(make_ring, folder, agreed, model):
    made = make_ring("fibfl++", 5, 2, "dir-0.5", task=agreed(), set=EPOCHS)
    allowed = made.ring.task.model if made.ring.task.is_own_code else None
    outcomes = run_threads(made, model=allowed)
    result = simulated(made, "digits", "dir-0.5", **model)
    by_matrix = simulated(made, "digits", "dir-0.5", audited=False, **model)
    torch.testing.assert_close(result.parameters, by_matrix.parameters, rtol=1e-3, atol=1e-4)
    for number, outcome in outcomes.items():
        assert torch.equal(outcome.parameters, result.parameters[number])
        assert outcome.history == tuple(result.history[:, number])
        verdict = audit(made.state(number) / "audit.jsonl")
        assert not verdict.breaches
        assert set(verdict.tensors) == set(made.ring.task.layout)
        saved = load_file(made.state(number) / "round-000002" / "state.safetensors")["parameters"]
        trained, theirs = blank_model(made.ring).filled(saved), result.model(number)
        x = torch.rand(3, 8, 8)
        assert torch.equal(trained.head(trained.extractor(x)), theirs.head(theirs.extractor(x)))


TRANSFORMER = {"model": "transformer", "model_set": {"vocabulary": 9, "width": 8, "depth": 1, "heads": 2}}


def token_ring(make_ring, model=TRANSFORMER):
    """Five sites with sequences, stored as bytes, as integers, or as floats, as tables do."""
    rng = np.random.default_rng(0)
    agreed = {"shape": [6], "labels": ["no", "yes"]} | model
    made = make_ring("fibfl+", 5, 2, task=stated(agreed, 0), set=EPOCHS)
    everything = []
    for number, kind in enumerate((np.uint8, np.int64, np.float32, np.int64, np.uint8)):
        x, y = rng.integers(0, 9, (60, 6)), rng.integers(0, 2, 60)
        np.savez(made.data(number), x=x[:40].astype(kind), y=np.array(["no", "yes"])[y[:40]],
                 x_test=x[40:].astype(kind), y_test=np.array(["no", "yes"])[y[40:]])  # fmt: skip
        everything.append((x, y))
    return made, everything


@pytest.mark.parametrize("model", [TRANSFORMER, {"model": "words:Words", "head": "fc"}])
def test_members_train_on_tokens(make_ring, folder, model):
    made, parts = token_ring(make_ring, model)
    assert made.ring.task.dtype == "int64"
    outcomes = run_threads(made, model=made.ring.task.model)
    train, test = (
        [np.concatenate([part[half][rows] for part in parts]) for half in (0, 1)] for rows in (slice(40), slice(40, 60))
    )
    dataset = firma.natural(firma.load_dataset((*train, *test)), np.repeat(range(5), 40), np.repeat(range(5), 20))
    result = simulated(made, dataset, "natural", **model)
    for number, outcome in outcomes.items():
        assert torch.equal(outcome.parameters, result.parameters[number])


def test_tokens_that_the_ring_file_does_not_allow(make_ring, tmp_path):
    made, _ = token_ring(make_ring)
    for x, says in (
        (np.full((20, 6), 9), "vocabulary = 9, but the data contain token 9; must be at least 10"),
        (np.full((20, 6), 0.5), "inputs are not integers (float64), but the ring file requires tokens"),
    ):
        np.savez(tmp_path / "bad.npz", x=x, y=np.arange(20) % 2)
        task = made.ring.task.model_copy(update={"labels": ("0", "1")})
        ring = made.ring.model_copy(update={"task": task})
        with pytest.raises(BadInput) as caught:
            LocalSite(ring, 0, load_own(str(tmp_path / "bad.npz"), task), torch.device("cpu"))
        assert says in str(caught.value)


def test_ring_file_fills_in_what_follows_from_the_model(command, folder):
    for number, name in enumerate(("ant", "bee")):
        command("init", name, f"127.0.0.1:{7001 + number}", "--identity", folder / name)
    members = [word for name in ("ant", "bee") for word in ("--member", folder / name / "site.toml")]
    words = [*members, "--federation", "trial", "--labels", "10"]
    code, out, err = command(
        "ring-file", "own.toml", *words, "--shape", "8x8", "--model", "mynet:whole", "--head", "fc",
        "--model-set", "width=12",
    )  # fmt: skip
    assert code == 0, err
    assert "model: mynet:whole, head fc, width = 12" in out
    assert "layers.py" in out
    assert set(read_ring(Path("own.toml")).task.files) == {"layers.py", "mynet.py"}
    code, _, err = command("ring-file", "mlp.toml", *words, "--shape", "8x8", "--model-set", "hidden=12")
    assert code == 0, err
    assert read_ring(Path("mlp.toml")).hyper.hidden == 12
    code, _, err = command("ring-file", "text.toml", *words, "--shape", "6", "--model", "transformer")
    assert (code, "parameter 'vocabulary' has no default; set it with --model-set vocabulary=VALUE" in err) == (2, True)
    code, _, err = command("ring-file", "odd.toml", *words, "--shape", "8x8", "--model", "mynet:whole")
    assert (code, err.count("\n"), "head='fc'" in err) == (2, 1, True), err
    assert not Path("odd.toml").exists()


def test_every_site_feeds_its_model_the_agreed_type(make_ring, folder):
    """Integers at one site and floats at another, and a task other than classification."""
    made = make_ring("fibfl", 2, 1, task=own(), set=EPOCHS)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (30, 8, 8))
    for kind in (np.int32, np.int64, np.float64):
        np.savez(made.data(0), x=x.astype(kind), y=np.arange(30) % 10)
        assert load_own(made.data(0), made.ring.task).x_train.dtype == np.float32
    agreed = {"shape": [6], "labels": ["price"], "kind": "regression", "model": "words:Words", "head": "fc"}
    ring = checked(made.ring.model_dump() | {"task": stated(agreed, 0)})
    np.savez(made.data(0), x=x[:, 0, :6].astype(np.float64), y=rng.normal(size=30))
    site = load_own(made.data(0), ring.task)
    assert (site.x_train.dtype, site.x_test.dtype, site.scale) == (np.int64, np.int64, 1.0)
    LocalSite(ring, 0, site, torch.device("cpu")).close()
