"""Day to day: disk budgets, backups, new certificates, systemd, JSON lines."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import zipfile
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from firma.errors import BadInput
from firma.peer.identity import load_identity, make_identity
from firma.peer.ring_file import Site, checked, read_ring, renewed, ring_toml
from firma.peer.runtime import checkpoint
from firma.peer.runtime.audit_log import AuditLog, audit
from firma.peer.runtime.backup import make_backup, restore_backup
from firma.peer.runtime.disk_budget import LOG, DiskBudget
from firma.peer.runtime.node import Node, Setup
from firma.peer.runtime.rotating_lines import RotatingLines, parts
from firma.peer.runtime.supervisor import Supervisor
from tests.processes import running, wait_until

from .conftest import NAMES, Fixture, accept_all
from .crew import Crew, join_words
from .test_node import run_threads

FIRMA = [sys.executable, "-m", "firma"]
UNIT = Path(__file__).parents[2] / "deploy" / "firma-site.service"


@pytest.fixture
def crew(make_ring):
    """`crew(members, rounds, ...)`: a ring that is ended with the test."""
    with ExitStack() as crews:

        def make(members=3, rounds=3, made=None, **changes):
            made = made or make_ring("fibfl", members, rounds, "iid", **({"patience": 5.0} | changes))
            each = Crew(made)
            crews.callback(each.end)
            return each

        yield make


# The disk


class Terms:
    """Of an audit file whose lines are written here."""

    classes = 10

    class signature:  # noqa: N801
        tensors = (("extractor.0.weight", (2, 3), 0),)


def test_equal_parts_of_the_audit_are_counted_each(make_ring, tmp_path, monkeypatch):
    """Many messages of one kind within a millisecond: their lines, and so whole parts, are the same but for a name."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, make_ring("fibfl", 2, 1, "iid").ring, 0, Terms, budget=20_000)
    for _ in range(1000):
        log.record_control(1, ["rounds"], 100)
    log.close()
    assert len({each.read_bytes() for each in parts(path)}) == len(parts(path))
    assert audit(path).messages == 1000


def test_the_audit_file_stays_within_its_budget_and_the_audit_covers_all_of_it(make_ring, tmp_path, command):
    made = make_ring("fibfl", 2, 1, "iid")
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, made.ring, 0, Terms, budget=20_000)
    for _ in range(1000):
        log.record_control(1, ["rounds"], 100)
    log.close()
    assert sum(each.stat().st_size for each in parts(path)) < 20_000 + 4 * 400
    assert len(parts(path)) == 4
    assert 0 < sum(each.read_bytes().count(b'"to"') for each in parts(path)) < 900, "most lines are gone"
    report = audit(path)
    assert (report.messages, report.size, report.receivers) == (1000, 100_000, {"bee": 100_000})
    assert (report.numbers, report.breaches) == (("rounds",), ())
    assert stat.S_IMODE((tmp_path / "audit.jsonl.summary").stat().st_mode) == 0o600
    shutil.copy(tmp_path / "audit.jsonl.3", tmp_path / "old")
    log = AuditLog(path, made.ring, 0, Terms, budget=20_000)  # a breach in a part that goes is not forgotten
    log.record_control(1, ["loss"], 100)
    for _ in range(1000):
        log.record_control(1, ["rounds"], 100)
    log.close()
    assert b"loss" not in b"".join(each.read_bytes() for each in parts(path))
    report = audit(path)
    assert (report.messages, report.breaches) == (2001, ("turn 0: loss went to bee",))
    code, out, _ = command("audit", path)
    assert (code, "BREACH turn 0: loss went to bee" in out) == (1, True)


def test_a_part_is_summarised_once_wherever_the_process_is_killed(make_ring, tmp_path, monkeypatch):
    made = make_ring("fibfl", 2, 1, "iid")
    path = tmp_path / "audit.jsonl"
    written = tried = killed = 0

    class Killed(BaseException):
        pass

    rotate = RotatingLines._rotate

    def cut(self):
        nonlocal tried, killed
        oldest, tried = path.with_name("audit.jsonl.3"), tried + 1
        if oldest.exists() and tried % 2:
            self._before_drop(oldest)  # the summary is written, and then the process is gone
            self._file.close()
            killed += 1
            raise Killed
        rotate(self)

    monkeypatch.setattr(RotatingLines, "_rotate", cut)
    while killed < 5:
        try:
            log = AuditLog(path, made.ring, 0, Terms, budget=8_000)
            for _ in range(7):
                written += 1  # a line is written before the file is rotated
                log.record_control(1, ["rounds"], 100)
            log.close()
        except Killed:
            pass
        assert audit(path).messages == written


def test_a_disk_budget_keeps_fewer_rounds_and_never_fewer_than_two(tmp_path):
    folder = tmp_path / "round-000001"
    folder.mkdir()
    (folder / "state.safetensors").write_bytes(b"x" * 1_000_000)
    assert DiskBudget().kept(folder, 5) == 7
    assert DiskBudget().log == LOG
    assert DiskBudget(100_000_000).kept(folder, 5) == 7
    assert DiskBudget(8_000_000).kept(folder, 5) == 5  # 2 MB for logs, and one is being written
    assert DiskBudget(1_000_000).kept(folder, 5) == 2
    assert DiskBudget(8_000_000).log == 1_000_000


def test_a_ring_with_a_small_disk_keeps_the_newest_rounds(make_ring):
    made = make_ring("fibfl", 2, 6, "iid")
    told = []
    run_threads(made, disk=DiskBudget(10_000), on_notice=told.append)
    for number in range(2):
        assert sorted(each.name for each in made.state(number).glob("round-*")) == ["round-000005", "round-000006"]
    assert any("the disk budget keeps 2 rounds, and the ring may go back 4" in text for text in told)


# Backup and restore


def test_a_backup_holds_the_newest_round_and_no_promises(make_ring, tmp_path, command):
    made = make_ring("fibfl", 2, 3, "iid")
    code, _, err = command("backup", made.state(0), tmp_path / "b.zip")
    assert (code, "no ring.toml there" in err) == (2, True)
    run_threads(made)
    file = tmp_path / "b.zip"
    code, out, err = command("backup", made.state(0), file)
    assert (code, "test, ant: round 3, " in out) == (0, True), err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    names = zipfile.ZipFile(file).namelist()
    assert {"round-000003/state.safetensors", "ring.toml", "audit.jsonl", "log.jsonl"} <= set(names)
    assert not [name for name in names if "promises" in name or "key" in name]
    assert (made.state(0) / "promises.json").exists()
    code, _, err = command("backup", made.state(0), file)
    assert (code, "already exists" in err) == (2, True)
    code, _, err = command("restore", file, made.state(0))
    assert (code, "is not empty; restore into a new one" in err) == (2, True)
    back = tmp_path / "back"
    code, out, _ = command("restore", file, back, "--json")
    assert (code, json.loads(out)["rounds"]) == (0, 3)
    assert not (back / "promises.json").exists()
    assert {each.name: stat.S_IMODE(each.stat().st_mode) & 0o077 for each in [back, *back.rglob("*")]} == dict.fromkeys(
        (each.name for each in [back, *back.rglob("*")]), 0
    )
    saved, kept = (checkpoint.read(each, 3, made.ring.digest) for each in (made.state(0), back))
    assert torch.equal(saved.tensors["parameters"], kept.tensors["parameters"])
    assert (saved.epoch, kept.epoch) == (1, 0), "it is behind all others, whatever it did since"
    data = ["--data", made.data(0)]
    assert command("evaluate", back, *data, "--json")[1] == command("evaluate", made.state(0), *data, "--json")[
        1
    ].replace(str(made.state(0)), str(back))


@pytest.mark.parametrize("what", ["promises.json", "../outside", "round-000003/../../outside", "/etc/outside"])
def test_a_backup_that_was_tampered_with_is_refused(make_ring, tmp_path, what):
    made = make_ring("fibfl", 2, 3, "iid")
    run_threads(made)
    make_backup(made.state(0), tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(contents["backup.json"])
    manifest["files"][what] = "0" * 64
    contents |= {"backup.json": json.dumps(manifest).encode(), what: b"{}"}
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        for name, raw in contents.items():
            archive.writestr(name, raw)
    with pytest.raises(BadInput, match="not a backup of firma backup, or damaged"):
        restore_backup(tmp_path / "bad.zip", tmp_path / "back")
    raw = bytearray((tmp_path / "b.zip").read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / "torn.zip").write_bytes(raw)
    with pytest.raises(BadInput, match="damaged"):
        restore_backup(tmp_path / "torn.zip", tmp_path / "back")
    assert not list(tmp_path.glob("*outside")) + list(tmp_path.glob("back*"))


def test_a_restored_site_breaks_no_promise(crew, tmp_path):
    """Its backup is of round 2; the ring is at round 6 and beyond when it comes back. Nobody goes back for it."""
    ring = crew(3, 100_000, patience=2.0)
    made = ring.made
    for number in range(3):
        ring.start(number)
    ring.wait_round(0, 2)
    made_backup = make_backup(made.state(1), tmp_path / "b.zip")
    ring.wait_round(0, 6)
    ring.kill(1)
    shutil.rmtree(made.state(1))
    restore_backup(tmp_path / "b.zip", made.state(1))
    ring.wait_notice(0, "ant-cat, from round")
    ring.start(1, resume=True)
    ring.wait(lambda: not ring.processes[1].is_alive() or ring.events(1, "view")[1:], "bee is refused, or let in")
    reached = max(done for _, done in ring.rounds(0))
    ring.wait_round(0, reached + 2)
    starts = [event["from_round"] for event in ring.events(0, "view")]
    assert starts == sorted(starts)
    assert starts[-1] > made_backup.rounds + 1, "no view goes back to what the backup knew"
    ring.views()  # never two views of one number


# New certificates


def renewed_ring(made, done):
    """New keys and certificates for all members, in folders of their own, and the ring file that continues."""
    sites = []
    for member in made.ring.members:
        identity = make_identity(made.folder / f"new-{member.name}", member.name)
        sites.append(Site(name=member.name, address=member.address, certificate=identity.certificate.decode()))
    return renewed(made.ring, sites, done)


class Renewed(Fixture):
    """The same ring with the new identities and state folders."""

    def identity(self, number):
        return self.folder / f"new-{NAMES[number]}"

    def state(self, number):
        return self.folder / f"new-{NAMES[number]}" / "state"


def test_new_certificates_continue_where_the_old_ones_ended(make_ring, tmp_path):
    """Stopped after round 3 of 6, certificates renewed, continued: the bits of a run that was never interrupted."""
    made = make_ring("fibfl++", 3, 6, "iid")
    whole = run_threads(made)
    for number in range(3):
        shutil.rmtree(made.state(number))
    run_threads(made, rounds_before_stop=lambda number: 3)
    ring = renewed_ring(made, 3)
    assert ring.digest != made.ring.digest
    path = tmp_path / "new.toml"
    path.write_text(ring_toml(ring))
    assert read_ring(path) == ring
    new = Renewed(made.folder, ring, path)
    accept_all(new)
    outcomes = run_threads(new, begin_with=made.state)
    for number in range(3):
        assert not isinstance(outcomes[number], BaseException), outcomes
        assert torch.equal(outcomes[number].parameters, whole[number].parameters)
        assert outcomes[number].history == whole[number].history
        assert (made.state(number) / "promises.json").exists(), "the old state is untouched"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 5}, "differs in seed"),
        ({"set": {"rate": 0.5}}, "differs in set"),
        ({"continues": {"ring": "0" * 64, "round": 1}}, "pass the right --begin-with"),
        (None, "pass --begin-with"),
    ],
)
def test_only_certificates_and_addresses_may_change(make_ring, change, says):
    made = make_ring("fibfl", 2, 3, "iid")
    run_threads(made, rounds_before_stop=lambda number: 1)
    values = renewed_ring(made, 1).model_dump(mode="json", exclude={"flower"})
    ring = checked(values | (change or {}))
    new = Renewed(made.folder, ring, made.path)
    accept_all(new)
    begin = None if change is None else made.state(0)
    setup = Setup(ring, load_identity(new.identity(0)), made.data(0), new.state(0), begin_with=begin)
    with pytest.raises(BadInput, match=says):
        Node(setup, print)
    assert not list(new.state(0).glob("round-*"))


def test_a_site_renews_its_certificate_on_the_command_line(make_ring, tmp_path, command):
    made = make_ring("fibfl", 2, 3, "iid")
    run_threads(made, rounds_before_stop=lambda number: 2)
    old, new, path = made.identity(1), tmp_path / "new-identity", tmp_path / "new.toml"
    code, _, err = command("init", "--renew", old, "--identity", new)
    assert (code, "no site.toml there" in err) == (2, True)
    member = made.ring.members[1]
    (old / "site.toml").write_text(
        f'name = "bee"\naddress = "{member.address}"\ncertificate = """{member.certificate}"""\n'
    )
    code, out, err = command("init", "--renew", old, "--identity", new)
    assert (code, "name         bee" in out) == (0, True), err
    code, _, err = command("init", "ant", "--renew", old, "--identity", tmp_path / "x")
    assert (code, "a site keeps its name" in err) == (2, True)
    words = ["ring-file", path, "--renews", made.state(0), "--member", new / "site.toml"]
    code, _, err = command(*words, "--rounds", "9")
    assert (code, "--rounds cannot be combined with --renews" in err) == (2, True)
    code, out, err = command(*words)
    assert (code, "continues: after round 2 of the ring whose digest is" in out) == (0, True), err
    ring = read_ring(path)
    assert [(a.name, a.address) for a in ring.members] == [(a.name, a.address) for a in made.ring.members]
    assert ring.members[0] == made.ring.members[0]
    assert ring.members[1].certificate != member.certificate
    code, _, err = command("ring-file", tmp_path / "x.toml", *words[2:], "--after", "7")
    assert (code, "has 2 rounds only" in err) == (2, True)


# systemd


@pytest.fixture
def notify_socket(tmp_path):
    """A supervisor's socket; `received()` is what has arrived so far."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(tmp_path / "notify"))
        line.setblocking(False)
        found = []

        def received():
            try:
                while True:
                    found.append(line.recv(4096).decode())
            except BlockingIOError:
                return found

        yield str(tmp_path / "notify"), received


def test_a_supervisor_is_told_often_enough(notify_socket):
    address, received = notify_socket
    told = Supervisor({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000", "WATCHDOG_PID": str(os.getpid())})
    told.ready()
    for _ in range(100):
        told.alive()
    told.status("round 3\nof 9")
    assert received() == ["READY=1", "WATCHDOG=1", "STATUS=round 3 of 9"]
    other = Supervisor({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"})
    other.alive()
    Supervisor({}).ready()
    Supervisor({"NOTIFY_SOCKET": address + "-gone"}).ready()
    assert len(received()) == 3, "another process's watchdog, no supervisor, and one that is gone"


def test_join_tells_systemd_and_writes_json_lines(make_ring, start, notify_socket):
    address, received = notify_socket
    made = make_ring("fibfl", 2, 1, "iid", gathering=600.0)
    err = made.folder / "err.txt"
    env = dict(os.environ) | {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "400000"}
    env.pop("WATCHDOG_PID", None)
    with err.open("w") as stderr:
        member = start(running([*FIRMA, *join_words(made, 0, "--log-json")], stderr=stderr, env=env))
    wait_until(lambda: received().count("WATCHDOG=1") >= 3, 60, err.read_text)
    assert received()[0] == "READY=1"
    wait_until(lambda: "waiting for bee" in err.read_text(), 60, "it waits")
    member.send_signal(signal.SIGSTOP)  # as if it hung: the supervisor hears nothing more
    stopped = Path(f"/proc/{member.pid}/stat")
    wait_until(lambda: stopped.read_text().rpartition(")")[2].split()[0] == "T", 60, "it stands still")
    count = len(received())
    with pytest.raises(subprocess.TimeoutExpired):
        member.wait(1.2)
    assert len(received()) == count
    member.terminate()  # systemd sends both: the first may then reach any thread, and the main one waits for work
    member.send_signal(signal.SIGCONT)
    assert member.wait(60) == 130
    assert "STOPPING=1" in received()
    lines = [json.loads(line) for line in err.read_text().splitlines()]
    assert all({"time", "level", "event"} <= line.keys() for line in lines)
    assert {"started", "notice", "stopped", "ended"} <= {line["event"] for line in lines}
    assert next(line for line in lines if line["event"] == "ended")["says"].startswith("interrupted; 0 rounds")


def test_every_line_is_json_when_the_input_is_wrong(command, make_ring, tmp_path):
    made = make_ring("fibfl", 2, 1, "iid")
    code, out, err = command(*join_words(made, 0, "--log-json", "--verify-gate"))
    (line,) = map(json.loads, err.splitlines())
    assert (code, out, line["level"], "has no gate to verify" in line["says"]) == (2, "", "error", True)


def test_the_unit_restarts_what_can_be_continued():
    text = UNIT.read_text()
    settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert settings["Type"] == "notify"
    assert "--resume" in settings["ExecStart"]
    assert {"WatchdogSec", "Restart", "RestartPreventExitStatus", "UMask", "LimitNOFILE"} <= settings.keys()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path):
    """With a program that exists in place of the one that an installation has."""
    unit = tmp_path / "firma-site.service"
    unit.write_text(UNIT.read_text().replace("/opt/firma/bin/firma", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    own = [line for line in done.stderr.splitlines() if "firma-site" in line]
    assert (done.returncode, own) == (0, []), done.stderr
