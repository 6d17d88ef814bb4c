"""Members as real processes that can be killed, stopped or cut off, and what their ring must have computed.

Processes are forked from a server that has imported torch already, so that a ring of them starts in a second or two.
A fault is installed in the child by wrapping the function at which it strikes: nothing in the package knows of it.
"""

import ctypes
import json
import multiprocessing
import os
import resource
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from firma.mixing.kind import exchange as exchange_of
from firma.peer.identity import load_identity
from firma.peer.ring_file import read_ring
from firma.peer.runtime import checkpoint
from firma.peer.runtime.catching_up import caught_up
from firma.peer.runtime.local_training import LocalSite, load_own
from firma.peer.runtime.node import Node, Setup
from firma.peer.runtime.promises import Promises
from firma.peer.runtime.round_loop import RoundLoop
from firma.peer.transport.client import Client
from firma.peer.transport.server import Server
from firma.peer.wire.message import REFUSED
from firma.protocol import Participant
from firma.schedule import plan
from tests.processes import wait_until

from . import insider
from .conftest import NAMES

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["firma.peer.runtime.node", "firma.peer.doctor"])


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def _wrap(holder, name, before=None, after=None):
    inner = getattr(holder, name)

    def wrapped(*args, **kwargs):
        if before is not None:
            before(*args, **kwargs)
        result = inner(*args, **kwargs)
        if after is not None:
            after(*args, **kwargs)
        return result

    setattr(holder, name, wrapped)


def _at(condition, act=die):
    return lambda *args, **kwargs: act() if condition(*args, **kwargs) else None


def _bytes_acknowledged():
    """Over all TCP connections of this process, what the other side's kernel has (tcpi_bytes_acked)."""
    total = 0
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # no socket, or closed meanwhile
            each = socket.socket(fileno=int(handle.name))
            with suppress(OSError):  # not of TCP
                total += struct.unpack_from("Q", each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128), 120)[0]
            each.detach()
    return total


def _mid_transfer(turn, step):
    """A message's header and half of its numbers arrive, then the process is gone."""
    attempt = Client._attempt

    def halved(parts):
        header, *rest = parts
        numbers, before = b"".join(rest), _bytes_acknowledged()
        half = numbers[: len(numbers) // 2]
        yield header
        yield half
        sent = before + len(header) + len(half)
        wait_until(lambda: _bytes_acknowledged() >= sent, 30, "half of the numbers have arrived")
        die()

    def cut_off(self, member, tag, parts, on_line):
        return attempt(self, member, tag, halved(parts) if tag[1:] == (turn, step) else parts, on_line)

    Client._attempt = cut_off


def _one_by_one(self, work):
    """Wait for the acknowledgement of all that was sent in an exchange before the next one begins."""
    del work
    wait_until(lambda: self._driver._client.queue.idle, 60, "everything is acknowledged")


def _full_disk(number):
    """From this round's training on every write fails after 2000 bytes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = (2000, resource.RLIM_INFINITY)
    fill = _at(lambda self, today: today.number == number, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    _wrap(LocalSite, "train", before=fill)


def _lie(kind, strength=1.0):
    """An insider: it runs the real code and trains honestly, but what leaves it is a lie, in every exchange."""
    send, draw = RoundLoop.send, torch.Generator().manual_seed(5)

    def lie(values):
        match kind:
            case "absurd":
                return torch.full_like(values, strength)
            case "sign-flip":
                return -values
            case "noise":
                size = strength * float(values.double().square().mean().sqrt())
                return values + size * torch.randn(values.shape, generator=draw)

    def lying(self, work):
        message, state = work.message, work.message.state
        if state.values.numel():
            accuracy = None if message.accuracy is None else 1.0
            message = replace(message, state=replace(state, values=lie(state.values)), accuracy=accuracy)
        send(self, replace(work, message=message))

    RoundLoop.send = lying


class SkewedTime:
    """The time module with another wall clock. gRPC keeps the machine's, by which it reckons its deadlines."""

    def __init__(self, seconds):
        self._seconds = seconds

    def time(self):
        return time.time() + self._seconds

    def __getattr__(self, name):
        return getattr(time, name)


def _skew(seconds):
    for name, module in sys.modules.items():
        if name.startswith("firma.") and getattr(module, "time", None) is time:
            module.time = SkewedTime(seconds)


def _no_data(*members):
    """Messages and probes to these members are lost on the way (to all, if none is named); heartbeats are not."""
    attempt, probe = Client._attempt, Client.probe

    def lost(self, member, tag, parts, on_line):
        if members and member not in members:
            return attempt(self, member, tag, parts, on_line)
        time.sleep(0.1)
        return None

    Client._attempt = lost
    Client.probe = lambda self, member, timeout: members and member not in members and probe(self, member, timeout)


def _slow_data(seconds):
    """A message leaves byte by byte, one in so many seconds; heartbeats are as ever."""
    attempt = Client._attempt

    def dripping(parts):
        header, *rest = parts
        yield header
        for each in b"".join(rest):
            yield bytes([each])
            time.sleep(seconds)

    Client._attempt = lambda self, member, tag, parts, on_line: attempt(self, member, tag, dripping(parts), on_line)


def _refuse(self, parts, context):
    for _ in parts:
        pass
    return bytes([REFUSED]) + b"on principle"


def _never_acknowledge(self, parts, context):
    for _ in parts:
        pass
    while context.is_active():
        time.sleep(0.1)
    return b""


def _answer_messages(rounds, answer):
    """From the training after so many rounds on, messages are answered like this."""
    inner, begun = Server.answer_send, []

    def answered(self, parts, context):
        return answer(self, parts, context) if begun else inner(self, parts, context)

    Server.answer_send = answered
    _after_rounds(rounds, lambda: begun.append(1))


def _after_rounds(rounds, act):
    """A fault that begins with the training of the round after so many."""
    done = []
    begin = _at(lambda self, today: today.number == rounds and not done, lambda: (done.append(1), act()))
    _wrap(LocalSite, "train", before=begin)


def _in_round(number):
    return _at(lambda self, today: today.number == number)


def _in_exchange(number, step):
    return _at(lambda self, work: work.tag[1:] == (number + 1, step))


def _in_save(number):
    return _at(lambda folder, site, ring, view, order, history, keep, *_, **__: len(history) == number + 1)


def _in_draft(number):
    return _at(lambda path, raw, *_, **__: path.parent.name == f".round-{number + 1:06d}.draft")


_PROMISING = _at(lambda self, memory: memory.view is not None and memory.promised[0] > 0)  # after the first view
FAULTS = {
    "training": lambda number: _wrap(LocalSite, "train", after=_in_round(number)),
    "before exchange": lambda number, step=0: _wrap(RoundLoop, "send", before=_in_exchange(number, step)),
    "mid transfer": lambda number, step=0: _mid_transfer(number + 1, step),
    "after exchange": lambda number, step=0: _wrap(RoundLoop, "score", before=_in_exchange(number, step)),
    "before save": lambda number: _wrap(checkpoint, "write", before=_in_save(number)),
    "mid save": lambda number: _wrap(checkpoint, "write_synced", after=_in_draft(number)),
    "after save": lambda number: _wrap(checkpoint, "write", after=_in_save(number)),
    # It stands still once the round is saved, while its other threads answer and deliver: to be killed by the test.
    "hold after save": lambda number: _wrap(
        RoundLoop, "save", after=_at(lambda self, work: work.number == number, lambda: time.sleep(600))
    ),
    "before promise": lambda _: _wrap(Promises, "write", before=_PROMISING),
    "after promise": lambda _: _wrap(Promises, "write", after=_PROMISING),
    "entering": lambda number: _wrap(RoundLoop, "enter", after=_at(lambda self, work: work.view.number == number)),
    # For these two, time is the fault: a training that does not end, one that takes longer.
    "hang": lambda number: _wrap(
        LocalSite, "train", before=_at(lambda self, today: today.number == number, lambda: time.sleep(600))
    ),
    "slow": lambda seconds: _wrap(LocalSite, "train", before=lambda self, today: time.sleep(seconds)),
    # From the training after so many rounds on: a line, or a member, that is alive and delivers nothing.
    "no data": lambda rounds, *members: _after_rounds(rounds, lambda: _no_data(*members)),
    "slow data": lambda rounds, seconds: _after_rounds(rounds, lambda: _slow_data(seconds)),
    "refuses": lambda rounds: _answer_messages(rounds, _refuse),
    "never acknowledges": lambda rounds: _answer_messages(rounds, _never_acknowledge),
    "one by one": lambda: _wrap(RoundLoop, "score", before=_one_by_one),
    "clock": _skew,
    "lie": _lie,
    "disk": _full_disk,
    "insider": insider.install,
    "open files": lambda soft, hard: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
}


def enter_namespace(name):
    with Path(f"/var/run/netns/{name}").open() as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def member_main(folder, number, resume, faults, namespace, pace, listen=None):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no member outlives the tests
    folder = Path(folder)
    home = folder / NAMES[number]
    out = (home / "out.txt").open("a", buffering=1)
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    torch.set_num_threads(1)
    code, said = 0, ""
    try:
        if namespace:
            enter_namespace(namespace)
        for fault, *where in (*faults, *([("slow", pace)] if pace else [])):
            FAULTS[fault](*where)
        ring = read_ring(folder / "ring.toml")
        identity, data = load_identity(home / "identity"), str(home / "data.npz")
        setup = Setup(ring, identity, data, home / "state", listen, resume)
        node = Node(
            setup, lambda report: print("round", report.number, report.ring), lambda text: print("notice", text)
        )
        signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        outcome = node.run()
        told = [span.as_json() for span in getattr(outcome, "participation", ())]
        found = {"history": outcome.history, "order": outcome.order, "participation": told}
        found["stopped_by"] = outcome.stopped_by
        (home / "outcome.json").write_text(json.dumps(found))
    except BaseException as error:
        code, said = (130 if isinstance(error, KeyboardInterrupt) else 3), f"{type(error).__name__}: {error}"
        print(said)
    sys.stdout.flush()
    os._exit(code)


def join_words(made, number, *words):
    """The words of `firma join` for a member of a ring that a test has made."""
    return [
        "join", str(made.path), "--data", made.data(number), "--identity", str(made.identity(number)),
        "--state", str(made.state(number)), *words,
    ]  # fmt: skip


class Crew:
    """The members of one ring."""

    def __init__(self, made, namespaces=None, pace=0.0, listen=None):
        self.made, self.namespaces, self.pace, self.processes = made, namespaces or {}, pace, {}
        self.listen = listen or {}  # addresses behind a proxy, by member

    def start(self, number, *faults, resume=False):
        arguments = (str(self.made.folder), number, resume, faults, self.namespaces.get(number), self.pace)
        arguments += (self.listen.get(number),)
        process = CONTEXT.Process(target=member_main, args=arguments, daemon=True)
        process.start()
        self.processes[number] = process
        return process

    def kill(self, number):
        os.kill(self.processes[number].pid, signal.SIGKILL)
        self.processes[number].join(10)

    def signal(self, number, which):
        os.kill(self.processes[number].pid, which)

    def finish(self, *numbers, timeout=120):
        """Exit codes; with `numbers` of those only."""
        end = time.monotonic() + timeout
        chosen = numbers or tuple(self.processes)
        for number in chosen:
            self.processes[number].join(max(0.1, end - time.monotonic()))
        return [self.processes[number].exitcode for number in chosen]

    def halt(self):
        """Everybody at the same moment: all stand still before the first is killed, so that nobody heals."""
        for which in (signal.SIGSTOP, signal.SIGKILL):
            for process in self.processes.values():
                os.kill(process.pid, which)
        for process in self.processes.values():
            process.join(10)

    def end(self):
        for process in self.processes.values():
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                process.join(10)

    def out(self, number):
        path = self.made.folder / NAMES[number] / "out.txt"
        return path.read_text() if path.exists() else ""

    def events(self, number, name):
        path = self.made.state(number) / "log.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def rounds(self, number):
        return [(event["view"], event["number"]) for event in self.events(number, "round")]

    def wait(self, condition, what):
        wait_until(condition, 120, lambda: f"{what}; { ({NAMES[n]: self.out(n)[-800:] for n in self.processes}) }")

    def wait_round(self, number, rounds):
        what = f"{NAMES[number]} has completed {rounds} rounds"
        self.wait(lambda: any(done >= rounds for _, done in self.rounds(number)), what)

    def wait_notice(self, number, text):
        self.wait(lambda: text in self.out(number), f"{NAMES[number]} says {text!r}")

    def views(self):
        """All views that anybody followed, by number; two that differ are a failed agreement."""
        found = {}
        for number in range(len(self.made.ring.members)):
            for event in self.events(number, "view"):
                view = (tuple(event["ring"]), event["from_round"] - 1)
                assert found.setdefault(event["number"], view) == view, "two views of one number"
        return found

    def parameters(self, number, rounds):
        return checkpoint.read(self.made.state(number), rounds, self.made.ring.digest).tensors["parameters"]


def replayed(crew):
    """Every member's parameters after each round that it did, computed in this process from the views alone."""
    made, ring = crew.made, crew.made.ring
    sites = [
        LocalSite(ring, n, load_own(made.data(n), ring.task), torch.device("cpu")) for n in range(len(ring.members))
    ]
    for number, site in enumerate(sites):
        checkpoint.write(made.folder / "replay" / str(number), site, ring.digest, 0, (), [], 10_000)
    # A member may be killed after it saved a round and before it logged it: then its next start shows the round.
    done = [
        {*crew.rounds(number), *((event["view"], event["rounds"]) for event in crew.events(number, "started"))}
        for number in range(len(sites))
    ]
    entered = [{event["number"] for event in crew.events(number, "view")} for number in range(len(sites))]
    final = {}
    for epoch, (names, start) in sorted(crew.views().items()):
        order = tuple(ring.names.index(name) for name in names)
        last = max((r for n in order for e, r in done[n] if e == epoch), default=start)
        senders = {n: [e["from"] for e in crew.events(n, "caught_up") if e["view"] == epoch] for n in order}
        for number in sorted(order, key=lambda n: bool(senders[n])):
            brought = [sites[ring.names.index(name)].shared for names in senders[number] for name in names]
            _go_to(made, sites[number], number, start, epoch in entered[number], brought)
            if epoch in entered[number]:  # it may have been killed before it got there
                final[number] = (start, sites[number].parameters.clone())
        for turn in range(start, last):
            today = plan(ring.row, ring.hyper, len(order), ring.rounds, turn)
            _lockstep(sites, order, today)
            for number in order:
                if (epoch, turn + 1) in done[number]:
                    folder = made.folder / "replay" / str(number)
                    checkpoint.write(folder, sites[number], ring.digest, epoch, order, [None] * (turn + 1), 10_000)
                    final[number] = (turn + 1, sites[number].parameters.clone())
    for site in sites:
        site.close()
    return final


def _go_to(made, site, number, start, entered, brought):
    folder = made.folder / "replay" / str(number)
    held = checkpoint.nearest(folder, start)
    checkpoint.restore(site, checkpoint.read(folder, held, made.ring.digest))
    if not entered:
        return
    if brought:
        site.adopt(caught_up(site.shared, brought))
    if held != start:
        checkpoint.write(folder, site, made.ring.digest, 0, (), [None] * start, 10_000)
    checkpoint.mark(folder, start, 0)


def _lockstep(sites, order, today):
    accuracies = {n: sites[n].train(today) for n in order}
    parts = {n: Participant(n, order, sites[n].shared, accuracies[n], len(sites[n].client.data.labels)) for n in order}
    peers = {n: exchange_of(today, part) for n, part in parts.items()}
    results, waiting = {}, {}
    for number, peer in peers.items():
        waiting[number] = next(peer)
    while waiting:
        posts = dict(waiting)
        for number, exchange in posts.items():
            arrived = {sender: posts[sender].message for sender in exchange.wait}
            try:
                waiting[number] = peers[number].send(arrived)
            except StopIteration as stop:
                results[number] = stop.value
                del waiting[number]
    for number, values in results.items():
        sites[number].blend(values, today)
