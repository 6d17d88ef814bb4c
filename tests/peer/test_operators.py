"""What operators do and what happens to them: two starts, full disks, old certificates, late restarts."""

import datetime
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from firma.peer.ring_file import checked, ring_toml
from firma.peer.runtime.checkpoint import latest
from firma.peer.runtime.event_log import EventLog
from firma.peer.runtime.json_lines import appended, lines_of
from firma.peer.runtime.rotating_lines import parts
from tests.processes import running, wait_until

from .conftest import NAMES, accept_all, free_ports
from .crew import Crew, join_words

FIRMA = [sys.executable, "-m", "firma"]


@pytest.fixture
def crew(make_ring):
    """`crew(members, rounds, ...)`: a ring that is ended with the test."""
    with ExitStack() as crews:

        def make(members=3, rounds=3, method="fibfl", pace=0.0, **changes):
            made = make_ring(method, members, rounds, "iid", **({"patience": 1.5, "gathering": 600.0} | changes))
            each = Crew(made, pace=pace)
            crews.callback(each.end)
            return each

        yield make


def firma(*words, timeout=120, env=None):
    found = subprocess.run(
        [*FIRMA, *map(str, words)], capture_output=True, text=True, check=False, timeout=timeout, env=env,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return found.returncode, found.stdout, found.stderr


def modes(folder):
    found = [folder, *folder.rglob("*")]
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in found}


# The state folder: one process, one reader


def test_a_second_join_on_one_state_folder_is_refused_until_the_first_is_gone(crew, command):
    ring = crew(2, 2)
    first = ring.start(0)
    ring.wait(lambda: ring.events(0, "started"), "the first has started")
    before = (ring.made.state(0) / "promises.json").exists(), len(ring.events(0, "started"))
    code, _, err = command(*join_words(ring.made, 0, "--resume", "--listen", f"127.0.0.1:{free_ports(1)[0]}"))
    assert code == 2
    assert f"is in use by process {first.pid}" in err
    assert err.count("\n") == 1
    assert before == ((ring.made.state(0) / "promises.json").exists(), len(ring.events(0, "started")))
    ring.kill(0)  # no goodbye: the lock ends with the process
    ring.start(0, resume=True)
    ring.start(1)
    assert ring.finish() == [0, 0], ring.out(0)


def test_the_state_folder_is_private_and_an_older_one_becomes_so(crew):
    ring = crew(2, 2)
    folder = ring.made.state(0)
    folder.mkdir(mode=0o755)
    (folder / "log.jsonl").write_text("")
    folder.chmod(0o755)
    umask = os.umask(0o022)
    try:
        for number in range(2):
            ring.start(number)
        assert ring.finish() == [0, 0], ring.out(0)
    finally:
        os.umask(umask)
    assert "was readable by others" in ring.out(0)
    assert "was readable by others" not in ring.out(1)
    for number in range(2):
        found = modes(ring.made.state(number))
        assert {name: mode for name, mode in found.items() if mode & 0o077} == {}
        assert {"promises.json", "audit.jsonl", "round-000002", "state.safetensors", "ring.toml"} <= found.keys()


def test_files_of_others_in_the_state_folder_keep_their_permissions(crew, command):
    ring = crew(2, 1, gathering=0.5)
    folder = ring.made.state(0)
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / "notes.txt").write_text("of the operator")
    (folder / "notes.txt").chmod(0o644)
    command(*join_words(ring.made, 0))
    found = modes(folder)
    assert (found["notes.txt"], found["state"], found["log.jsonl"]) == (0o644, 0o755, 0o600)


def test_a_key_that_others_could_read_is_made_private_with_a_notice(crew, command):
    ring = crew(2, 1, gathering=0.5)
    key = ring.made.identity(0) / "key.pem"
    key.chmod(0o644)
    _, _, err = command(*join_words(ring.made, 0))
    assert "the key was readable by others and is private now" in err
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


# Logs after a crash


def test_an_audit_file_that_was_cut_off_is_audited_and_continued(crew, command):
    """Both logs lose the end of their last line, as after a full disk; the site goes on, and nothing is hidden."""
    ring = crew(2, 3)
    ring.start(0, ("after save", 1))
    ring.start(1)  # it may still wait for the last message of the other, which was killed
    assert ring.finish(0) == [-signal.SIGKILL]
    ring.kill(1)
    path, log = (ring.made.state(0) / name for name in ("audit.jsonl", "log.jsonl"))
    *whole, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole) + last[:40])
    log.write_bytes(log.read_bytes()[:-7])
    recorded, cut = sum(b'"to"' in line for line in whole), f"line {len(whole) + 1} was cut off after 40 bytes"
    code, out, err = command("audit", path)
    assert (code, cut in out, f"{recorded} messages" in out) == (0, True, True), (out, err)
    for number in range(2):
        ring.start(number, resume=True)
    assert ring.finish() == [0, 0], ring.out(0)
    assert path.read_bytes().startswith(b"".join(whole) + last[:40] + b"\n"), "nothing is removed"
    code, out, err = command("audit", path, "--json")
    report = json.loads(out)
    assert (code, report["breaches"], report["unfinished"]) == (0, [], [cut]), err
    assert report["messages"] > recorded
    code, out, _ = command("status", ring.made.state(0))
    assert (code, "round 3 of 3" in out) == (0, True), out
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b'{"time": 1, "to": "be\n'  # no crash explains this one
    path.write_bytes(b"".join(lines))
    code, out, _ = command("audit", path)
    assert (code, "BREACH line 3 is damaged" in out, "audit FAILED" in out) == (1, True, True)


def test_every_cut_of_a_file_of_lines_is_continued(tmp_path):
    whole = [{"to": "bee"}, {"to": "cat"}]
    text = "".join(json.dumps(line) + "\n" for line in whole).encode()
    path = tmp_path / "lines"
    for size in range(len(text) + 1):
        path.write_bytes(text[:size])
        before = [line for line in lines_of(path) if line.value is None]
        with appended(path) as file:
            file.write('{"to": "dog"}\n')
        assert path.read_bytes().startswith(text[:size])
        found = list(lines_of(path))
        kept = [line.value for line in found if line.value is not None]
        assert kept == [*whole[: len(kept) - 1], {"to": "dog"}]
        damaged = [line for line in found if line.value is None]
        assert [(line.size, line.cut_off) for line in damaged] == [(line.size, line.cut_off) for line in before]
        assert len(damaged) <= 1


# The end of a run


def has_saved(ring, number, rounds):
    return (ring.made.state(number) / f"round-{rounds:06d}").exists()


def test_a_site_that_has_all_rounds_ends_at_once(crew):
    """All were killed after the last round was saved; none has a result. Each comes back alone, at another time."""
    ring = crew(3, 2)
    for number in range(3):
        ring.start(number, ("hold after save", 1))
    ring.wait(lambda: all(has_saved(ring, number, 2) for number in range(3)), "all have saved the last round")
    ring.halt()
    began = time.monotonic()
    code, out, err = firma(*join_words(ring.made, 0, "--resume"))
    assert code == 0, err
    assert time.monotonic() - began < 120, "gathering is 600 s, and a machine may be busy"
    result = json.loads((ring.made.state(0) / "result.json").read_text())
    assert len(result["history"]) == 2
    assert result["participation"] == [{"rounds": [1, 2], "members": ["ant", "bee", "cat"]}]
    assert "took part: rounds 1-2 all members" in out
    for number in (1, 2):
        ring.start(number, resume=True)
    assert ring.finish(1, 2, timeout=120) == [0, 0], ring.out(1)


def test_a_site_that_has_all_rounds_stays_for_one_that_has_not(crew):
    """With two members, the one that lacks the last round cannot complete it alone."""
    ring = crew(2, 3)
    ring.start(0, ("hold after save", 2))
    ring.start(1, ("one by one",), ("before save", 2))  # ant has its message before it dies
    assert ring.finish(1) == [-signal.SIGKILL]
    ring.wait(lambda: has_saved(ring, 0, 3), "ant has saved the last round")
    ring.kill(0)
    ring.start(1, resume=True)
    ring.wait(lambda: len(ring.events(1, "started")) == 2, "bee is back")
    ring.start(0, resume=True)
    assert ring.finish(timeout=60) == [0, 0], (ring.out(0), ring.out(1))
    assert len(ring.rounds(1)) == 3


def test_who_took_part_in_which_rounds_is_told(crew, command):
    ring = crew(3, 24, pace=0.15)
    for number in range(3):
        ring.start(number)
    ring.wait_round(0, 2)
    ring.kill(2)
    saved = latest(ring.made.state(2))  # a round that the others have completed may not be saved here yet
    ring.wait_notice(0, ": ant-bee, from")
    code, out, _ = command("status", ring.made.state(0))
    assert (code, f"running as process {ring.processes[0].pid} on" in out) == (0, True), out
    assert "  in the ring: ant, bee\n  not in it: cat\n" in out
    assert "of 24" in out
    code, out, _ = command("status", ring.made.state(2))
    assert (code, "cat is not running" in out, "killed" in out) == (1, True, True), out
    ring.start(2, resume=True)
    assert ring.finish(timeout=90) == [0, 0, 0], ring.out(2)
    views = [(view["from_round"], "cat" in view["ring"]) for view in ring.events(0, "view")]  # some may be repeated
    left = next(start for start, here in views if not here)
    back = next(start for start, here in views if here and start > left)
    for number in range(3):
        spans = json.loads((ring.made.folder / NAMES[number] / "outcome.json").read_text())["participation"]
        away = ["ant", "bee"] if number < 2 else None
        assert [span["members"] for span in spans] == [["ant", "bee", "cat"], away, ["ant", "bee", "cat"]]
        last = left - 1 if number < 2 else min(saved, left - 1)
        assert [span["rounds"] for span in spans] == [[1, last], [last + 1, back - 1], [back, 24]]


# Certificates


def certificate(folder, name, first, last):
    """A certificate that is valid from `first` to `last` days from now, in place of the one in the folder."""
    key = serialization.load_pem_private_key((folder / "key.pem").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(9).not_valid_before(now + datetime.timedelta(days=first))
        .not_valid_after(now + datetime.timedelta(days=last))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = made.public_bytes(serialization.Encoding.PEM)
    (folder / "certificate.pem").write_bytes(pem)
    return pem.decode()


def with_dates(made, number, first, last):
    """The ring with another certificate of one member."""
    values = made.ring.model_dump(mode="json", exclude={"flower"})
    values["members"][number]["certificate"] = certificate(made.identity(number), NAMES[number], first, last)
    ring = checked(values)
    made.path.write_text(ring_toml(ring))
    accept_all(made, ring)


@pytest.mark.parametrize(
    ("first", "last", "code", "says"),
    [
        (-9, -2, 2, "this site's certificate expired on"),
        (2, 9, 2, "this site's certificate is not valid before"),
        (-9, 20, 3, "this site's certificate expires on"),
        (-9, 90, 3, ""),
    ],
)
def test_join_and_doctor_look_at_the_dates_of_certificates(command, make_ring, first, last, code, says):
    made = make_ring("fibfl", 2, 1, "iid", gathering=0.5, patience=1.0)
    with_dates(made, 0, first, last)
    found, _, err = command(*join_words(made, 0))
    assert (found, says in err, ("certificate" in err) == bool(says)) == (code, True, True), err
    _, out, _ = command("doctor", made.path, "--identity", made.identity(0), "--wait", "0")
    line = next(line for line in out.splitlines() if "certificate of ant" in line)
    assert (line.startswith("FAIL"), says.removeprefix("this site's certificate ") in line) == (code == 2, True)


def test_an_expired_certificate_of_another_member_is_told(command, make_ring):
    made = make_ring("fibfl", 2, 1, "iid", gathering=0.5, patience=1.0)
    with_dates(made, 1, -9, -2)
    code, _, err = command(*join_words(made, 0))
    assert (code, "warning: the certificate of bee expired on" in err) == (3, True), err


# What is printed


def knock(address, times):
    host, port = address.split(":")
    for _ in range(times):
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as each:
            each.sendall(b"GET / HTTP/1.1\r\n\r\n")
            each.settimeout(5)
            while each.recv(100):
                pass


def waiting_member(ring, start, *words, env=None):
    """A member that waits for the others, and the file that its error stream goes to."""
    err = ring.made.folder / "err.txt"
    with err.open("w") as stderr:
        member = start(running([*FIRMA, *join_words(ring.made, 0, *words)], stderr=stderr, env=env))
    wait_until(lambda: "waiting" in err.read_text(), 300, lambda: f"it waits for bee; it said {err.read_text()!r}")
    return member, err


def test_strangers_and_broken_connections_leave_no_raw_lines_on_stderr(crew, start):
    """Every line on the terminal is FIRMA's own: neither gRPC's lines nor tracebacks of the metrics' server."""
    ring = crew(2, 1, gathering=600.0)
    (port,) = free_ports(1)
    env = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    member, err = waiting_member(ring, start, "--metrics", str(port), env=env)
    knock(ring.made.ring.members[0].address, 50)
    for request in range(300):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as each:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset, not close
            each.sendall([b"GET /metrics HTTP/1.0\r\n\r\n", b"GET /met", b""][request % 3])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as each:
        each.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert each.makefile().readline().startswith("HTTP/1.0 200")
    member.terminate()
    assert member.wait(60) == 130
    assert [line for line in err.read_text().splitlines() if not line.startswith("firma: ")] == []
    assert ring.events(0, "stopped")[-1]["handshakes_failed"] >= 50


@pytest.mark.slow
def test_the_environment_brings_the_lines_of_grpc_back(crew, start):
    ring = crew(2, 1, gathering=600.0)
    member, err = waiting_member(ring, start, env=dict(os.environ) | {"GRPC_VERBOSITY": "info"})
    knock(ring.made.ring.members[0].address, 50)
    member.terminate()
    assert member.wait(60) == 130
    assert err.read_text().count("Handshake failed") >= 50


# The log


def test_the_log_stays_within_its_budget_and_has_levels(tmp_path):
    path = tmp_path / "log.jsonl"
    log = EventLog(path, 20_000)
    log.event("started", {"site": "ant"})
    log.event("view", {"number": 1})
    for number in range(1000):
        log.event("round", {"number": number})
    log.refused("message", "bee", "why")
    log.event("notice", {"says": "paused: bee has stopped"})
    log.event("failed", {"why": "the end"})
    log.close()
    found = parts(path)
    assert [part.name for part in found] == ["log.jsonl.3", "log.jsonl.2", "log.jsonl.1", "log.jsonl"]
    assert sum(part.stat().st_size for part in found) < 20_000 + 4 * 200
    assert all(stat.S_IMODE(part.stat().st_mode) == 0o600 for part in found)
    lines = [line.value for part in found for line in lines_of(part)]
    numbers = [line["number"] for line in lines if line["event"] == "round"]
    assert numbers == list(range(numbers[0], 1000)), "no line is lost between two parts"
    assert 100 < len(numbers) < 900
    for part in found:
        assert [line.value["event"] for line in lines_of(part)][:2] == ["started", "view"]
    assert [line["level"] for line in lines[-4:]] == ["info", "warning", "warning", "error"]
