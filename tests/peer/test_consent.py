"""What members consent to: the ring file before the ring starts, and its end before the last round."""

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import termios
from contextlib import ExitStack

import pytest

from firma.errors import BadInput
from firma.peer.identity import load_identity, make_identity
from firma.peer.ring_file import checked, ring_toml
from firma.peer.runtime.node import Node, Setup
from firma.peer.spoken import spoken
from firma.peer.statement_folder import StatementFolder
from firma.peer.wire.statements import Statements, decode_statements, encode_statements, is_signed, sign
from firma.peer.wire.terms import WireError
from tests.processes import running, wait_until

from .conftest import NAMES, accept_all
from .crew import Crew

FIRMA = [sys.executable, "-m", "firma"]


def forget(made):
    """As before anybody accepted."""
    for number in range(len(made.ring.members)):
        shutil.rmtree(made.identity(number) / "rings")


def accept(made, number, ring=None):
    """What `firma accept` does after it has asked."""
    own = load_identity(made.identity(number))
    assert StatementFolder(ring or made.ring, own).make(own, "accept")


@pytest.fixture
def join(start):
    """`join(made, number, *words)`: a member of the command line with the files that it writes to."""

    def make(made, number, *words, path=None):
        command = [
            *FIRMA, "join", path or made.path, "--data", made.data(number), "--identity", made.identity(number),
            "--state", made.state(number), *words,
        ]  # fmt: skip
        out, err = (made.folder / NAMES[number] / name for name in ("stdout.txt", "stderr.txt"))
        with out.open("w") as stdout, err.open("w") as stderr:
            return start(running(list(map(str, command)), stdout=stdout, stderr=stderr)), out, err

    return make


@pytest.fixture
def crew(make_ring):
    """`crew(members, rounds, ...)`: a ring that is ended with the test."""
    with ExitStack() as crews:

        def make(members=3, rounds=3, **changes):
            each = Crew(make_ring("fibfl", members, rounds, "iid", **({"patience": 30.0} | changes)))
            crews.callback(each.end)
            return each

        yield make


# Statements


def test_a_statement_is_of_one_member_one_kind_and_one_ring_file(make_ring):
    made = make_ring("fibfl", 3, 1, "iid")
    own = load_identity(made.identity(1))
    signature = sign(own, "accept", made.ring.digest)
    assert is_signed(made.ring, ("accept", 1), signature)
    assert not is_signed(made.ring, ("accept", 0), signature)
    assert not is_signed(made.ring, ("stop", 1), signature)
    assert not is_signed(made.ring.model_copy(update={"seed": 1}), ("accept", 1), signature)
    assert not is_signed(made.ring, ("accept", 1), b"\x30" + signature[1:-1] + b"!")
    folder = StatementFolder(made.ring, own)
    assert folder.add({("stop", 2): signature, ("stop", 1): sign(own, "stop", made.ring.digest)}) == (("stop", 1),)
    assert folder.by("stop") == ("bee",), "what a member has not signed is as good as nothing"
    assert StatementFolder(made.ring, own).by("stop") == ("bee",)
    path = made.identity(1) / "rings" / made.ring.digest.hex() / "bee.stop"
    path.write_text(signature.hex())
    assert StatementFolder(made.ring, own).by("stop") == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:20],
        lambda raw: b"XXXX" + raw[4:],
        lambda raw: raw.replace(b'"accept"', b'"except"'),
        lambda raw: raw.replace(b'"1"', b'"3"'),
        lambda raw: raw.replace(b'"1"', b'"01"'),
        lambda raw: raw.replace(b'"1": "30', b'"1": "zz'),
        lambda raw: raw.replace(b'{"1"', b'["1"'),
        lambda raw: raw + b" " * (1 << 20),
    ],
)
def test_statements_of_the_wrong_form_are_refused(make_ring, change):
    made = make_ring("fibfl", 2, 1, "iid")
    signature = sign(load_identity(made.identity(1)), "accept", made.ring.digest)
    found = Statements(made.ring.digest, {("accept", 1): signature})
    raw = encode_statements(found)
    assert decode_statements(raw, made.ring) == found
    with pytest.raises(WireError):
        decode_statements(change(raw), made.ring)


# Accepting


def test_accept_shows_all_that_is_agreed_and_signs(command, make_ring, tmp_path):
    made = make_ring("fibfl++", 2, 7, "iid", set={"rate": 0.0031})
    forget(made)
    words = ["accept", made.path, "--identity", made.identity(0)]
    code, out, err = command(*words)
    assert (code, "on a terminal, or pass --yes" in err) == (2, True), err
    assert "rate=0.0031" in out
    assert not (made.identity(0) / "rings").exists()
    code, out, _ = command(*words, "--yes")
    assert (code, "ant has accepted this ring file." in out) == (0, True)
    assert "Not yet known to have accepted: bee." in out
    for says in (
        "rounds: 7, from seed 0", "labels: 10: 0, 1", "threshold=", "in words: ", "quorum: 2 of 2",
        f"in words, for the telephone: {spoken(made.ring.digest)}",
    ):  # fmt: skip
        assert says in out, out
    for unused in ("momentum=", "personal_rate=", "mean_penalty=", "byzantine=", "degree=", " epochs=", "retention="):
        assert unused not in out, "settings that the method does not read"
    code, out, _ = command(*words, "--json")
    document = json.loads(out)
    assert (code, document["signed"], document["accepted"], document["lacking"]) == (0, False, ["ant"], ["bee"])
    assert "momentum" not in document["numbers"]
    other = made.ring.model_copy(update={"rounds": 8})
    (tmp_path / "other.toml").write_text(ring_toml(other))
    assert "Not yet" in command("accept", tmp_path / "other.toml", *words[2:], "--yes")[1]
    assert made.ring.digest != other.digest
    assert sorted(each.name for each in (made.identity(0) / "rings").iterdir()) == sorted(
        ring.digest.hex() for ring in (made.ring, other)
    ), "a changed file is accepted by itself"


def on_a_terminal(command, answers):
    """Run a command whose terminal is a pseudo-terminal, and answer its questions; its exit code."""
    leader, follower = pty.openpty()
    own = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", own, *command], stdin=follower, stdout=subprocess.DEVNULL, stderr=follower,
        start_new_session=True,
    )  # fmt: skip
    os.close(follower)
    try:
        seen = b""
        for question, answer in answers:
            while question not in seen:
                assert select.select([leader], [], [], 60)[0], seen
                seen += os.read(leader, 4096)
            if b"passphrase" in question:  # what is typed before it is hidden is thrown away
                wait_until(lambda: not termios.tcgetattr(leader)[3] & termios.ECHO, 60, "nobody sees it")
            os.write(leader, answer)
        return process.wait(60)
    finally:
        process.kill()
        process.wait()
        os.close(leader)


def test_a_person_is_asked_on_the_terminal(make_ring):
    """First for the passphrase of an encrypted key, then for consent."""
    made = make_ring("fibfl", 2, 1, "iid")
    shutil.rmtree(made.identity(0))
    new = make_identity(made.identity(0), "ant", passphrase=b"word")
    values = made.ring.model_dump(mode="json", exclude=made.ring.absent)
    values["members"][0]["certificate"] = new.certificate.decode()
    ring = checked(values)
    made.path.write_text(ring_toml(ring))
    words = [*FIRMA, "accept", str(made.path), "--identity", str(made.identity(0))]
    for answer, code in ((b"\n", 1), (b"y\n", 0)):
        assert on_a_terminal(words, [(b"passphrase of the key", b"word\n"), (b"[y/N]", answer)]) == code
        accepted = StatementFolder(ring, load_identity(made.identity(0), lambda: b"word")).by("accept")
        assert accepted == (("ant",) if code == 0 else ())


def test_a_site_that_has_not_accepted_does_not_start(make_ring):
    made = make_ring("fibfl", 2, 1, "iid")
    forget(made)
    own = load_identity(made.identity(0))
    setup = Setup(made.ring, own, made.data(0), made.state(0))
    with pytest.raises(BadInput, match=r"this site has not accepted the ring file .* sign it with firma accept"):
        Node(setup, print)
    assert not made.state(0).exists()
    accept_all(made)
    other = made.ring.model_copy(update={"seed": 4})
    with pytest.raises(BadInput, match="has not accepted"):
        Node(Setup(other, own, made.data(0), made.state(0)), print)


def test_a_ring_starts_when_all_have_accepted_and_says_whose_acceptance_lacks(crew, command):
    """Signatures travel by themselves: nobody copies a file from site to site."""
    ring = crew(3, 2, gathering=600.0)
    made = ring.made
    forget(made)
    accept(made, 0)
    accept(made, 1)
    for number in range(2):
        ring.start(number)
    for number in range(2):
        ring.wait_notice(number, "waiting until all members have accepted the ring file (cat: no answer yet)")
        own = load_identity(made.identity(number))
        known = lambda own=own: set(StatementFolder(made.ring, own).by("accept"))  # noqa: E731
        wait_until(lambda known=known: known() == {"ant", "bee"}, 60, "they told each other")
    assert not any((made.state(number) / "round-000001").exists() for number in range(2))
    assert not any(json.loads(line)["tensors"] for line in audit_lines(made, 0)), "no parameter has left"
    accept(made, 2)
    ring.start(2)
    assert ring.finish() == [0, 0, 0], ring.out(0)
    for number in range(3):
        own = load_identity(made.identity(number))
        assert StatementFolder(made.ring, own).by("accept") == ("ant", "bee", "cat")
        code, out, _ = command("audit", made.state(number) / "audit.jsonl")
        assert (code, "statements" in out) == (0, True), out


def audit_lines(made, number):
    return (made.state(number) / "audit.jsonl").read_text().splitlines()[1:]


def test_a_member_with_another_ring_file_is_named_with_both_digests(make_ring, join, command):
    made = make_ring("fibfl", 2, 2, "iid", gathering=600.0, patience=30.0)
    other = made.ring.model_copy(update={"rounds": 3})
    forget(made)
    path = made.folder / "other.toml"
    path.write_text(ring_toml(other))
    accept(made, 0)
    accept(made, 1, other)
    _, _, err = join(made, 0)
    join(made, 1, path=path)
    says = (
        f"bee: it has another ring file: its digest is {spoken(other.digest)}; this site's is "
        f"{spoken(made.ring.digest)}"
    )
    wait_until(lambda: says in err.read_text(), 60, err.read_text)
    code, out, _ = command("doctor", made.path, "--identity", made.identity(0), "--wait", "20")
    assert (code, f"FAIL  bee: answers, but {says.removeprefix('bee: ')}" in out) == (1, True), out


def test_signatures_travel_with_doctor(make_ring, start, command):
    made = make_ring("fibfl", 2, 1, "iid")
    forget(made)
    code, out, _ = command("doctor", made.path, "--identity", made.identity(0), "--wait", "0")
    assert (code, "FAIL  acceptance: this site has not accepted this ring file" in out) == (1, True)
    assert "FAIL  acceptance of bee: not known to have accepted this ring file: firma accept there" in out
    accept(made, 0)
    accept(made, 1)
    commands = [
        [*FIRMA, "doctor", str(made.path), "--identity", str(made.identity(number)), "--wait", "60"]
        for number in range(2)
    ]
    both = [start(running(each, stdout=subprocess.PIPE)) for each in commands]
    texts = [each.communicate(timeout=120)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], texts
    assert "pass  acceptance of bee: it has accepted this ring file" in texts[0]
    for number in range(2):
        assert StatementFolder(made.ring, load_identity(made.identity(number))).lacking("accept") == ()


# Stopping


def ask_to_stop(command, made, number, *words):
    found = ["stop", "--state", made.state(number), "--identity", made.identity(number), "--yes", *words]
    code, out, err = command(*found)
    assert code == 0, err
    return out


def test_a_ring_is_stopped_by_a_quorum_and_by_no_less(make_ring, join, command, request):
    made = make_ring("fibfl", 3, 100_000, "iid", patience=30.0)
    members = [join(made, number) for number in range(3)]
    seen = Crew(made)
    request.addfinalizer(seen.end)
    seen.wait_round(0, 2)
    assert "1 of the 2 members that are needed (bee)" in ask_to_stop(command, made, 1)
    for _, _, err in members:
        wait_until(lambda err=err: "bee asks to stop the ring; 1 of the 2" in err.read_text(), 60, "all are told")
    code, out, _ = command("status", made.state(0))
    assert (code, "asked to stop: bee (1 of the 2 that are needed)" in out) == (0, True), out
    before = max(done for _, done in seen.rounds(2))
    seen.wait_round(2, before + 2)  # one alone does not stop it
    document = json.loads(ask_to_stop(command, made, 1, "--json"))
    assert (document["signed"], document["running"], document["asked"]) == (False, True, ["bee"])
    ask_to_stop(command, made, 0)
    for number, (process, out, err) in enumerate(members):
        assert process.wait(120) == 0, err.read_text()
        result = json.loads((made.state(number) / "result.json").read_text())
        assert result["stopped_by"] == ["ant", "bee"]
        rounds = len(result["history"])
        assert (made.state(number) / f"round-{rounds:06d}").exists()
        assert f"stopped after round {rounds} of 100000, as ant, bee asked: accuracy" in out.read_text()
        code, told, _ = command("status", made.state(number))
        assert (code, "is stopped by agreement" in told) == (0, True), told
    seen.start(2, resume=True)  # it remembers
    assert seen.finish(2) == [0], seen.out(2)
    assert json.loads((made.folder / "cat" / "outcome.json").read_text())["stopped_by"] == ["ant", "bee"]


@pytest.mark.slow  # two members are lost and found missing on the way
def test_a_request_to_stop_reaches_a_member_that_was_away(crew, command):
    """It was asked while bee was down and its asker has gone since: bee learns of it from the third member."""
    ring = crew(3, 100_000, patience=2.0)
    for number in range(3):
        ring.start(number)
    ring.wait_round(0, 1)
    ring.kill(1)
    ask_to_stop(command, ring.made, 0)
    ring.wait_notice(2, "ant asks to stop")
    ring.kill(0)
    ring.start(1, resume=True)
    ring.wait_notice(1, "ant asks to stop")
    ask_to_stop(command, ring.made, 1)
    assert ring.finish(1, 2) == [0, 0], ring.out(1)
    for name in ("bee", "cat"):
        assert json.loads((ring.made.folder / name / "outcome.json").read_text())["stopped_by"] == ["ant", "bee"]


def test_stop_needs_a_ring_and_consent(command, make_ring, tmp_path):
    made = make_ring("fibfl", 2, 1, "iid")
    code, _, err = command("stop", "--state", tmp_path / "nowhere", "--identity", made.identity(0))
    assert (code, "no ring.toml there" in err) == (2, True)
    code, _, err = command("stop", made.path, "--identity", made.identity(0))
    assert (code, "cannot be taken back" in err) == (2, True)
    code, out, _ = command("stop", made.path, "--identity", made.identity(0), "--yes")
    assert (code, "firma join does not run here" in out) == (0, True)
