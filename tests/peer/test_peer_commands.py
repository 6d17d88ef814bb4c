"""init, ring-file and audit as a person uses them; and the audit can fail."""

import json
import socket

import numpy as np
import pytest

from firma.errors import BadInput


def test_from_keys_to_a_ring_file(command, tmp_path):
    for number, name in enumerate(("ant", "bee")):
        code, out, _ = command("init", name, f"127.0.0.1:{7001 + number}", "--identity", tmp_path / name)
        assert code == 0
        assert "fingerprint" in out
    members = [word for name in ("ant", "bee") for word in ("--member", tmp_path / name / "site.toml")]
    task = ["--federation", "trial", "--shape", "8x8", "--labels", "10", "--set", "rate=0.001"]
    code, out, _ = command("ring-file", tmp_path / "ring.toml", *members, *task)
    assert code == 0
    assert "valid" in out
    assert command("ring-file", tmp_path / "ring.toml")[1] == out
    code, _, err = command("ring-file", tmp_path / "other.toml", *members, "--shape", "8by8", "--labels", "10")
    assert (code, err.count("\n")) == (2, 1)
    code, _, err = command("ring-file", tmp_path / "alone.toml", *members[:2], *task)
    assert (code, err) == (2, "firma: --member must be given at least twice: a ring has two or more members\n")
    code, _, err = command("join", tmp_path / "ring.toml", "--data", "x.npz", "--identity", tmp_path / "nobody")
    assert (code, "firma init" in err) == (2, True)
    code, _, err = command("ring-file", tmp_path / "narrow.toml", *members, *task, "--wire", "int4")
    assert (code, err.count("\n"), "wire" in err) == (2, 1, True)
    code, out, _ = command("ring-file", tmp_path / "narrow.toml", *members, *task, "--wire", "int8")
    assert code == 0
    assert 'wire = "int8"' in (tmp_path / "narrow.toml").read_text()


def test_what_join_cannot_do_is_said_before_anything_is_sent(command, make_ring, tmp_path):
    made = make_ring("fibfl", 2, 1, "iid")
    words = ["join", made.path, "--data", made.data(0), "--identity", made.identity(0), "--state", tmp_path / "state"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for extra, says in (
            (["--wire", "int4"], "float32, bfloat16, int8"),
            (["--verify-gate"], "has no gate to verify"),
            (["--metrics", str(port)], "cannot listen there"),
            (["--metrics", "nonsense"], "HOST:PORT"),
        ):
            code, out, err = command(*words, *extra)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert says in err
    assert not (tmp_path / "state" / "round-000001").exists()


@pytest.mark.parametrize(
    ("shape", "label", "says"),
    [
        ((8, 8), 11, "label '11' is not in the ring file, which has 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ((64,), 1, "inputs have shape (64,), but the ring file requires (8, 8)"),
    ],
)
def test_data_that_do_not_fit_the_ring_file(command, make_ring, tmp_path, shape, label, says):
    made = make_ring("fibfl", 2, 1, "iid")
    np.savez(tmp_path / "mine.npz", x=np.zeros((10, *shape), np.float32), y=np.array([0] * 5 + [label] * 5))
    state = tmp_path / "state"
    code, _, err = command(
        "join", made.path, "--data", tmp_path / "mine.npz", "--identity", made.identity(0), "--state", state
    )
    assert (code, err.count("\n"), says in err, state.exists()) == (2, 1, True, False), err


def test_a_state_folder_of_another_ring_file_is_refused(command, make_ring, tmp_path):
    made = make_ring("fibfl", 2, 1, "iid")
    state = tmp_path / "state"
    state.mkdir()
    memory = {"view": None, "promised": [0, -1], "accepted": None}
    (state / "promises.json").write_text(json.dumps({"ring": "0" * 64, "memory": memory}))
    code, _, err = command(
        "join", made.path, "--data", made.data(0), "--identity", made.identity(0), "--state", state, "--resume"
    )
    assert (code, f"--begin-with {state}" in err.splitlines()[-1]) == (2, True), err


HEADER = {"site": "ant", "federation": "t", "classes": 10, "extractor": {"extractor.0.weight": [2, 3]}}
GOOD = {
    "turn": 1, "step": 0, "to": "bee", "numbers": ["accuracy"], "bytes": 300,
    "tensors": [{"name": "extractor.0.weight", "shape": [2, 3], "start": 0, "count": 6}],
}  # fmt: skip
HEAD = {"name": "head.weight", "shape": [2, 3], "start": 0, "count": 6}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, 0),
        ({"tensors": [HEAD]}, 1),
        ({"numbers": ["loss"]}, 1),
        ({"bytes": 100_000}, 1),
        ({"tensors": [GOOD["tensors"][0] | {"shape": [3, 2]}]}, 1),
    ],
)
def test_audit_fails_on_anything_but_the_extractor_and_agreed_numbers(command, tmp_path, change, code):
    path = tmp_path / "audit.jsonl"
    path.write_text(json.dumps(HEADER) + "\n" + json.dumps(GOOD | change) + "\n")
    found, out, _ = command("audit", path)
    assert found == code
    assert ("BREACH" in out) == bool(code)


def test_an_audit_file_that_is_none(command, tmp_path):
    (tmp_path / "a").write_text("junk")
    code, _, err = command("audit", tmp_path / "a")
    assert (code, "is not an audit file" in err) == (2, True)
    code, _, err = command("audit", tmp_path / "none")
    assert (code, "cannot be read (No such file or directory)" in err) == (2, True)


def test_peers_refuse_an_algorithm_of_ones_own(make_ring):
    with pytest.raises(BadInput, match="its algorithm is code of your own, which peers do not run; use it with"):
        make_ring("fibfl:algorithm=mine:Mine")
