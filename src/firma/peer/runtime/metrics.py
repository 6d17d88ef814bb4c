"""`/metrics` for Prometheus: what a member knows of its run, in the text format, on a local port.

Everything is read when it is asked for, from the logs, the driver and the last round's report. There is neither TLS nor
a password: the port is for this machine, and no number here is of the model's parameters.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Literal

import firma
from firma.errors import BadInput
from firma.page.bounded_server import BoundedServer, answering
from firma.peer.identity import check_address
from firma.peer.ring_file import Ring
from firma.peer.runtime.node import Node
from firma.peer.runtime.round_loop import RoundReport
from firma.tasks.task import TITLES

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
_SLOW = 5.0  # seconds that a reader may take to ask


@dataclass(frozen=True, slots=True)
class Family:
    """A metric and its samples: one value for every value of its one label, or a single one under ""."""

    name: str
    kind: Literal["counter", "gauge"]
    about: str
    samples: Mapping[str, float]
    label: str = ""

    def text(self) -> str:
        """Its lines; a family without samples has none."""
        lines = [f"# HELP {self.name} {self.about}", f"# TYPE {self.name} {self.kind}"]
        for key, value in self.samples.items():
            labels = f'{{{self.label}="{_escaped(key)}"}}' if self.label else ""
            lines.append(f"{self.name}{labels} {value!r}")
        return "\n".join(lines) + "\n" if self.samples else ""


Collect = Callable[[], Iterable[Family]]


class Registry:
    """What is shown: collectors that are asked for their families at every request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._collectors: list[Collect] = []

    def register(self, *collectors: Collect) -> None:
        """Show these families from now on."""
        with self._lock:
            self._collectors += collectors

    def text(self) -> str:
        """All families at this moment; empty before anything is registered."""
        with self._lock:
            collectors = list(self._collectors)
        return "".join(family.text() for collect in collectors for family in collect())


class RoundMetrics:
    """What the rounds so far have reported; `note` is given every round's report."""

    def __init__(self, ring: Ring) -> None:
        self._ring, self._lock = ring, threading.Lock()
        self._last: tuple[RoundReport, float] | None = None
        self._training = self._mixing = 0.0

    def note(self, report: RoundReport) -> None:
        """A round is over."""
        with self._lock:
            self._last = (report, time.time())
            self._training += report.training
            self._mixing += report.mixing

    def collect(self) -> Iterator[Family]:
        """Rounds, seconds, accuracy and weights."""
        with self._lock:
            last, training, mixing = self._last, self._training, self._mixing
        yield Family("firma_rounds_planned", "gauge", "Rounds in the ring file.", _one(self._ring.rounds))
        yield Family("firma_training_seconds_total", "counter", "Seconds of local training.", _one(training))
        yield Family("firma_mixing_seconds_total", "counter", "Seconds of exchanging and blending.", _one(mixing))
        members = len(last[0].ring if last else self._ring.members)
        yield Family("firma_members", "gauge", "Members of the ring, this site included.", _one(members))
        if last is not None:
            report, when = last
            yield Family("firma_round", "gauge", "The last round that this site has completed.", _one(report.number))
            title = TITLES[report.main]
            about = f"{title[0].upper()}{title[1:]} on this site's test data."
            yield Family(f"firma_{report.main}", "gauge", about, _one(report.accuracy))
            about = "Every metric of the task on this site's test data."
            yield Family("firma_test_metric", "gauge", about, report.metrics, "metric")
            yield Family("firma_round_seconds", "gauge", "Seconds of the last round.", _one(report.seconds))
            about = "When the last round ended, in seconds since 1970."
            yield Family("firma_last_round_timestamp_seconds", "gauge", about, _one(when))
            about = "Weight of a member in one pass of this site's blend."
            yield Family("firma_weight", "gauge", about, report.weights, "member")


def node_metrics(node: Node) -> Iterator[Family]:
    """What left, what was refused, and when each member was last heard."""
    yield Family("firma_info", "gauge", "Version of FIRMA at this site.", {firma.__version__: 1}, "version")
    about = "Bytes of messages to a member, message headers included."
    yield Family("firma_sent_bytes_total", "counter", about, node.audit_log.totals(), "member")
    about = "Messages and heartbeats that were refused, by kind."
    yield Family("firma_refused_total", "counter", about, node.log.total(), "kind")
    about = "Handshakes that led to no call: strangers, scanners, members that disconnected."
    yield Family("firma_handshakes_failed_total", "counter", about, _one(node.server.handshakes_failed))
    about = "Seconds since a member was last heard."
    yield Family("firma_silence_seconds", "gauge", about, node.driver.silence(), "member")
    about = "Seconds for which this site has been waiting for a member, its messages or its appearance."
    awaited = dict.fromkeys(set(node.ring.names) - {node.ring.names[node.me]}, 0.0) | node.driver.awaited()
    yield Family("firma_waiting_seconds", "gauge", about, dict(sorted(awaited.items())), "member")


@contextmanager
def serving(registry: Registry, address: str) -> Iterator[int]:
    """Answer GET /metrics until the block ends; gives the port. Without a host, only this machine is answered."""
    host, _, port = address.rpartition(":")
    host = host or "127.0.0.1"
    check_address(f"{host}:{port}")

    class Answer(BaseHTTPRequestHandler):
        timeout = _SLOW

        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == "/metrics"
            body = registry.text().encode() if found else b"see /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT if found else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002, the library's name
            pass

    try:
        server = BoundedServer((host, int(port)), Answer)
    except OSError as error:
        raise BadInput(f"metrics = {address!r}: cannot listen there ({error.strerror}); choose another port") from None
    with answering(server) as found:
        yield found


def _one(value: float) -> dict[str, float]:
    return {"": value}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
