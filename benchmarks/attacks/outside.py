"""What strangers, crashes, machines and files do to a site: rows C, G, H and I."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from firma.peer.identity import make_identity
from firma.peer.ring_file import checked, ring_toml
from tests.peer.conftest import NAMES, accept_all, free_ports
from tests.peer.test_operators import join_words, knock, with_dates
from tests.peer.test_site_data import COLUMNS, SITES, SPECIES, Tables, ring_of
from tests.peer.test_strangers import idle_connections
from tests.processes import running, wait_until

from .sites import LONG, Found, Sites, five_sites, mean, repeated, seconds

FIRMA = [sys.executable, "-m", "firma"]
GATHERING = 600.0
ORDERS = ((0, 1, 2), (2, 0, 1), (1, 0, 2))  # of the columns of three sites


def firma(*words: Any) -> tuple[int, str, str]:
    """A command of its own process: exit code, output, errors."""
    found = subprocess.run(
        [*FIRMA, *map(str, words)], capture_output=True, text=True, check=False, timeout=LONG, stdin=subprocess.DEVNULL
    )
    return found.returncode, found.stdout, found.stderr


# C: connections


def _idle(hard: int | None) -> Callable[[Path], Found]:
    """1,100 connections that say nothing are held at ant, whose limit of open files is 1,024, before others arrive."""

    def run(folder: Path) -> Found:
        limit = hard or resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with five_sites(folder, 6) as sites:
            sites.start(0, ("open files", 1024, limit))
            sites.wait(lambda: sites.events(0, "started"), "ant has started")
            with idle_connections(sites.made.ring.members[0].address, 1100, again=hard is None):
                began = time.monotonic()
                for number in range(1, 5):
                    sites.start(number)
                codes = sites.finish(timeout=LONG)
                took = time.monotonic() - began
            lost = repeated(sites, range(5))
            views = max(sites.views())
        facts = {"codes": codes, "seconds": took, "repeated": lost, "views": views}
        now = f"all 6 rounds completed in {took:.0f} s beside them; rounds lost: {lost}; exit codes {codes}"
        return Found(codes == [0] * 5, now, facts)

    return run


idle_soft = _idle(None)
idle_hard = _idle(1024)


# G: the end of a run


def _alone(sites: Sites, number: int) -> tuple[int | None, float]:
    """A member that is started again with --resume: its exit code, and the seconds that it took."""
    began = time.monotonic()
    sites.start(number, resume=True)
    (code,) = sites.finish(number, timeout=LONG)
    return code, time.monotonic() - began


def killed_after_the_last_round(folder: Path) -> Found:
    """All five are killed when the last round is saved and no result is written; each comes back alone."""
    with five_sites(folder, 3, gathering=GATHERING) as sites:
        for number in range(5):
            sites.start(number, ("hold after save", 2))
        last = [sites.made.state(number) / "round-000003" for number in range(5)]
        sites.wait(lambda: all(path.exists() for path in last), "all have saved the last round")
        sites.halt()
        ends = [_alone(sites, number) for number in range(5)]
        results = [sites.result(number) for number in range(5)]
        waited = [
            sites.events(n, "stopped")[-1]["time"] - sites.events(n, "started")[-1]["time"] for n in range(5)
        ]  # without the start of Python itself
    codes = [code for code, _ in ends]
    facts = {
        "codes": codes, "with_start_up": [round(took, 1) for _, took in ends],
        "seconds": [round(took, 1) for took in waited], "results": sum(map(bool, results)),
    }  # fmt: skip
    kept = codes == [0] * 5 and all(results) and max(took for _, took in ends) < GATHERING / 2
    now = (
        f"each alone ends with its result: {facts['results']} of 5, within {seconds(max(waited))} of its start; "
        f"exit codes {codes}"
    )
    return Found(kept, now, facts)


def latecomer(folder: Path) -> Found:
    """Bee is killed after round 3 and comes back when the others have done ten of 24 rounds or more."""
    with five_sites(folder, 24, pace=1.0, gathering=300.0) as sites:
        sites.start_all()
        sites.wait_round(1, 3)
        sites.kill(1)
        sites.start(1, resume=True, hold=folder / "come")
        sites.wait((folder / "come.ready").exists, "bee could come")
        sites.wait_round(0, 10)
        (folder / "come").touch()
        codes = sites.finish(timeout=LONG)
        found, brought = sites.result(1), sites.events(1, "caught_up")
        accuracies = sites.accuracies()
    facts = {
        "codes": codes, "result": bool(found), "brought_to": [each["rounds"] for each in brought],
        "by": [each["from"] for each in brought], "accuracies": accuracies,
        "participation": found["participation"] if found else None,
    }  # fmt: skip
    if not brought or not found:
        return Found(False, f"not brought back; exit codes {codes}", facts)
    now = (
        f"brought to round {brought[-1]['rounds']} of 24 by {', '.join(brought[-1]['from'])}; result with accuracy "
        f"{accuracies[1]:.3f} (others {min(a for a in accuracies if a is not None):.3f} and more); exit codes {codes}"
    )
    return Found(codes == [0] * 5, now, facts)


def too_late(folder: Path) -> Found:
    """The same, after all others have ended: nobody is left to send it anything."""
    with five_sites(folder, 8, pace=0.2, gathering=60.0) as sites:
        sites.start_all()
        sites.wait_round(1, 3)
        sites.kill(1)
        codes = sites.finish(0, 2, 3, 4, timeout=LONG)
        code, took = _alone(sites, 1)
        (says,) = [line for line in sites.out(1).splitlines() if "--resume" in line][-1:] or [sites.out(1)[-300:]]
    facts = {"codes": codes, "late": code, "seconds": took, "says": says}
    short = re.sub(r" \(ant: .*\)|in /.*state", "", says)
    now = f"the others end with {codes}; the late one waits {seconds(took)} and ends with {code}: `{short}`"
    return Found(codes == [0] * 4 and code == 3, now, facts)


def lost_disk(folder: Path) -> Found:
    """The state folder of bee is lost after round 3 or so; bee is started again with an empty one."""
    with five_sites(folder, 60, pace=0.3) as sites:
        sites.start_all()
        sites.wait_round(1, 3)
        sites.kill(1)
        sites.wait(lambda: any(NAMES[1] not in ring for ring, _ in sites.views().values()), "bee is left out")
        shutil.rmtree(sites.made.state(1))
        sites.start(1)
        codes = sites.finish(timeout=LONG)
        found, brought, accuracies = sites.result(1), sites.events(1, "caught_up"), sites.accuracies()
    facts = {
        "codes": codes, "result": bool(found), "brought_to": [each["rounds"] for each in brought],
        "accuracies": accuracies, "participation": found["participation"] if found else None,
    }  # fmt: skip
    if not brought or not found:
        return Found(False, f"not brought back; exit codes {codes}", facts)
    now = (
        f"brought to round {brought[0]['rounds']} of 60 with a new head; its accuracy at the end {accuracies[1]:.3f}; "
        f"exit codes {codes}"
    )
    return Found(codes == [0] * 5, now, facts)


# H: files, dates and terminals


def torn_line(folder: Path) -> Found:
    """Bee is killed, and the end of its audit file is cut off in the middle of a line, as by a full disk."""
    with five_sites(folder, 10, pace=0.2) as sites:
        sites.start_all()
        sites.wait_round(1, 3)
        sites.kill(1)
        path = sites.made.state(1) / "audit.jsonl"
        whole = path.read_bytes()
        path.write_bytes(whole[: whole.rstrip(b"\n").rfind(b"\n") + 41])
        before, out, _ = firma("audit", path)
        sites.start(1, resume=True)
        codes = sites.finish(timeout=LONG)
        after, _, _ = firma("audit", path)
    facts = {"audit_before": before, "audit_after": after, "codes": codes, "reported": "was cut off after" in out}
    kept = (before, after, facts["reported"], codes) == (0, 0, True, [0] * 5)
    now = f"reported; audit ends with {before}, and with {after} after the site has gone on; exit codes {codes}"
    return Found(kept, now, facts)


def _open_to_others(folder: Path) -> tuple[int, list[str]]:
    """How many files a folder holds, and those that other users can read, which takes every folder above them."""
    files = [path for path in folder.rglob("*") if path.is_file()]

    def allows(path: Path) -> bool:
        mode = stat.S_IMODE(path.stat().st_mode)
        return bool(mode & (0o011 if path.is_dir() else 0o044))

    above = {path: [each for each in path.parents if each == folder or folder in each.parents] for path in files}
    return len(files), sorted(path.name for path in files if all(map(allows, (path, *above[path]))))


def permissions(folder: Path) -> Found:
    """What others can read of a site's folders, under the usual umask of 022."""
    umask = os.umask(0o022)
    try:
        with five_sites(folder, 2, members=4) as sites:
            sites.start_all()
            codes = sites.finish(timeout=LONG)
            found = [_open_to_others(each) for each in (sites.made.state(0), sites.made.identity(0))]
    finally:
        os.umask(umask)
    files, public = sum(count for count, _ in found), [name for _, names in found for name in names]
    now = f"of {files} files in the state and identity folders of a site, others can read {len(public)}"
    return Found(codes == [0] * 4 and not public and files > 10, now, {"files": files, "public": public})


def dates(folder: Path) -> Found:
    """`firma join` with a certificate that has expired, that is not valid yet, and that ends in 20 days."""
    said = {}
    for name, first, last in (("expired", -9, -2), ("not yet valid", 2, 9), ("ends in 20 days", -9, 20)):
        with five_sites(folder / name, 1, members=4, gathering=0.5, patience=1.0) as sites:
            with_dates(sites.made, 0, first, last)
            code, _, err = firma(*join_words(sites.made, 0))
            said[name] = (code, "this site's certificate" in err)
    kept = said == {"expired": (2, True), "not yet valid": (2, True), "ends in 20 days": (3, True)}
    now = "; ".join(
        f"{name}: {'told' if told else 'not told'}, exit code {code}" for name, (code, told) in said.items()
    )
    return Found(kept, f"{now} (3: nobody else came)", {name: list(each) for name, each in said.items()})


def raw_lines(folder: Path) -> Found:
    """400 strangers on the port of a member, and 300 broken requests to its metrics."""
    with five_sites(folder, 1, members=4) as sites:
        (port,) = free_ports(1)
        err = folder / "err.txt"
        env = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
        words = join_words(sites.made, 0, "--metrics", str(port))
        with err.open("w") as stderr, running([*FIRMA, *words], stderr=stderr, env=env) as member:
            wait_until(lambda: "waiting" in err.read_text(), LONG, "it waits for the others")
            knock(sites.made.ring.members[0].address, 400)
            for request in range(300):
                with socket.create_connection(("127.0.0.1", port), timeout=30) as each:
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset, not close
                    each.sendall([b"GET /metrics HTTP/1.0\r\n\r\n", b"GET /met", b""][request % 3])
            member.send_signal(signal.SIGTERM)
            code = member.wait(LONG)
        raw = [line for line in err.read_text().splitlines() if not line.startswith("firma: ")]
        counted = sites.events(0, "stopped")[-1]["handshakes_failed"]
    now = f"{len(raw)} raw lines on stderr; {counted} failed handshakes counted; exit code {code}"
    return Found(not raw and code == 130 and counted >= 400, now, {"raw": raw[:3], "counted": counted, "code": code})


# I: data and keys


def _tables(folder: Path, orders: tuple[tuple[int, ...], ...] = ORDERS, **changes: Any) -> Sites:
    """Three sites with 200 trees each: the same columns, in three orders."""
    draw = np.random.default_rng(8)
    for name, order in zip(SITES, orders, strict=True):
        lines = [",".join([*(COLUMNS[place] for place in order), "label"])]
        for row in range(200):
            kind = row % len(SPECIES)
            values = kind * np.array([1, 0.001, 900]) + draw.normal(size=3) * np.array([0.4, 2e-3, 2000])
            lines.append(",".join([*(f"{values[place]:.6f}" for place in order), SPECIES[kind]]))
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "trees.csv").write_text("\n".join(lines) + "\n")
    return Sites(Tables(folder, ring_of(folder, **changes), folder / "ring.toml"))


def _trained(sites: Sites) -> tuple[list[int | None], list[float | None]]:
    try:
        for number in range(len(SITES)):
            sites.start(number)
        return sites.finish(timeout=LONG), sites.accuracies()
    finally:
        sites.end()


def columns(folder: Path) -> Found:
    """Three sites with the same columns in three orders, with and without names of columns in the ring file."""
    _, same = _trained(_tables(folder / "same", ((0, 1, 2),) * 3))
    codes, named = _trained(_tables(folder / "named"))
    plain = {"shape": [3], "labels": list(SPECIES)}
    _, unnamed = _trained(_tables(folder / "unnamed", task=plain))
    sites = _tables(folder / "plain", task=plain, gathering=0.1)
    site = ["--data", sites.made.data(1), "--identity", sites.made.identity(1)]
    doctor, out, _ = firma("doctor", sites.made.path, *site, "--wait", "0")
    _, _, err = firma("join", sites.made.path, *site, "--state", folder / "state")
    warned, failed = "warning: the ring file lists no columns" in err, "FAIL  columns" in out
    facts = {
        "codes": codes, "same": same, "named": named, "unnamed": unnamed, "doctor": doctor, "warned": warned,
    }  # fmt: skip
    now = (
        f"matched by name: mean accuracy {mean(named):.3f}, with equal orders {mean(same):.3f}; without names in the "
        f"ring file {mean(unnamed):.3f}, but {'`doctor` fails' if failed else '`doctor` passes'} and `join` "
        f"{'warns' if warned else 'is silent'}"
    )
    return Found(codes == [0] * 3 and failed and warned and abs(mean(named) - mean(same)) < 0.02, now, facts)


def one_class(folder: Path) -> Found:
    """A site that has samples of one class only."""
    sites = _tables(folder)
    path = Path(sites.made.data(2))
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, *(line for line in rows if line.endswith("oak"))]) + "\n")
    codes, accuracies = _trained(sites)
    now = f"it takes part; exit codes {codes}, accuracies {', '.join(f'{each or 0:.3f}' for each in accuracies)}"
    return Found(codes == [0] * 3, now, {"codes": codes, "accuracies": accuracies})


def absurd_inputs(folder: Path) -> Found:
    """A float64 of 1e300, and another of 1e19, in one row of a site's data."""
    ring_of(folder, task={"shape": [3], "labels": list(SPECIES)}, gathering=0.1)
    said = {}
    for value in (1e300, 1e19):
        x = np.random.default_rng(0).normal(size=(20, 3))
        x[3, 1] = value
        labels = np.array(["ash", "elm"] * 10)
        np.savez(folder / "mine.npz", x=x, y=labels, x_test=x[5:9], y_test=labels[:4])
        words = ["--data", folder / "mine.npz", "--identity", folder / "ant" / "identity"]
        code, _, err = firma("join", folder / "ring.toml", *words, "--state", folder / "state")
        doctor, out, _ = firma("doctor", folder / "ring.toml", *words, "--wait", "0")
        said[f"{value:g}"] = [code, "inputs must be finite" in err, doctor, "FAIL  data" in out]
    now = "; ".join(f"{value}: `join` exit code {each[0]}, `doctor` {each[2]}" for value, each in said.items())
    return Found(all(each == [2, True, 1, True] for each in said.values()), f"refused with row and value: {now}", said)


def agreed_unseen(folder: Path) -> Found:
    """What `firma ring-file` shows of a file that is to be agreed to."""
    with five_sites(folder, 3) as sites:
        code, out, _ = firma("ring-file", sites.made.path)
    wanted = ("method", "rounds", "model", "inputs", "labels", "settings", "numbers", "quorum", "insiders", "patience")
    shown = [word for word in wanted if re.search(rf"^ +{word}: ", out, re.MULTILINE)]
    lacks = sorted({*wanted} - {*shown})
    now = f"shows {', '.join(shown)}" + (f"; lacks {', '.join(lacks)}" if lacks else "; nothing is missing")
    return Found(code == 0 and not lacks, now, {"code": code, "shown": shown})


def encrypted_key(folder: Path) -> Found:
    """`firma join` with an encrypted key, without and with its passphrase."""
    with five_sites(folder, 1, members=4, gathering=0.5, patience=1.0) as sites:
        made, values = sites.made, sites.made.ring.model_dump(mode="json", exclude={"flower"})
        for number, name in enumerate(made.ring.names):
            shutil.rmtree(made.identity(number))
            identity = make_identity(made.identity(number), name, passphrase=b"word")
            values["members"][number]["certificate"] = identity.certificate.decode()
        made.path.write_text(ring_toml(checked(values)))
        accept_all(made, checked(values), lambda: b"word")
        (folder / "word").write_text("word\n")
        without, _, err = firma(*join_words(made, 0))
        right, _, _ = firma(*join_words(made, 0, "--passphrase-file", folder / "word"))
        mode = stat.S_IMODE((made.identity(0) / "key.pem").stat().st_mode)
    told = "passphrase is missing: pass --passphrase-file" in err
    facts = {"without": without, "told": told, "with": right, "mode": oct(mode)}
    now = (
        f"without a passphrase: {'told what to do' if told else 'not told'}, exit code {without}; with it the site "
        f"starts (exit code {right}: nobody else came)"
    )
    return Found((without, told, right) == (2, True, 3), now, facts)


def bad_data(folder: Path) -> Found:
    """`firma doctor --data` on features of very different scales, with test rows that are training rows."""
    ring_of(folder, set={"hidden": 32})
    x = np.random.default_rng(0).normal(size=(40, 3)) * np.array([1, 1, 1e5])
    y = np.array(["ash", "oak"] * 20)
    np.savez(folder / "mine.npz", x=x, y=y, x_test=np.concatenate([x[:3], x[:4] + 1]), y_test=y[:7])
    words = ["--data", folder / "mine.npz", "--identity", folder / "ant" / "identity", "--wait", "0"]
    code, out, _ = firma("doctor", folder / "ring.toml", *words)
    checks = {"scale": "FAIL  scale", "duplicates": "3 of 7 test rows", "labels": "pass  labels: ash 20, oak 20"}
    found = [name for name, text in checks.items() if text in out]
    now = f"exit code {code}; it tells of {', '.join(found) or 'nothing'}"
    return Found(code == 1 and len(found) == len(checks), now, {"code": code, "found": json.dumps(found)})
