"""/metrics as Prometheus' own parser reads it, while a ring trains."""

import http.client
import socket
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from firma.errors import BadInput
from firma.peer.identity import load_identity
from firma.peer.runtime.metrics import CONTENT, Family, Registry, RoundMetrics, node_metrics, serving
from firma.peer.runtime.node import Node, Setup
from tests.processes import wait_until

from .conftest import free_ports


def parsed(text):
    """{name: {label value: value}}; the parser drops a counter's _total, so names are those of the samples."""
    found, kinds = {}, {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            assert len(sample.labels) <= 1
            found.setdefault(sample.name, {})["".join(sample.labels.values())] = sample.value
            kinds[sample.name] = family.type
    assert all((kind == "counter") == name.endswith("_total") for name, kind in kinds.items())
    return found


def get(port, path="/metrics"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        assert answer.headers["Content-Type"] == CONTENT
        return answer.read().decode()


def test_a_run_seen_from_outside(make_ring):
    made = make_ring("fibfl++", 3, 6, "dir-0.5")
    registry, rounds, seen, nodes, outcomes = Registry(), RoundMetrics(made.ring), [], [], {}
    (port,) = free_ports(1)

    def on_round(number):
        def note(report):
            if number == 0:
                rounds.note(report)
                seen.append((report, parsed(get(port))))

        return note

    for number in range(3):
        setup = Setup(made.ring, load_identity(made.identity(number)), made.data(number), made.state(number))
        nodes.append(Node(setup, on_round(number)))

    def work(number):
        outcomes[number] = nodes[number].run()

    registry.register(rounds.collect, partial(node_metrics, nodes[0]))
    with serving(registry, str(port)):
        before = parsed(get(port))
        nodes[0].log.refused('odd "kind"\\', "bee", "a label that needs escaping")
        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        after = parsed(get(port))
    assert before["firma_rounds_planned"] == {"": 6}
    assert before["firma_members"] == {"": 3}
    assert set(before["firma_waiting_seconds"]) == {"bee", "cat"}
    assert all(seconds > 0 for seconds in before["firma_waiting_seconds"].values()), "they have not appeared"
    assert "firma_accuracy" not in before, "nothing is known yet"
    assert [page["firma_round"][""] for _, page in seen] == [1, 2, 3, 4, 5, 6]
    for report, page in seen:
        assert page["firma_accuracy"][""] == report.accuracy
        assert page.get("firma_weight", {}) == report.weights
        assert page["firma_round_seconds"][""] == report.seconds
        assert set(page["firma_silence_seconds"]) == {"bee", "cat"}
        assert all(0 <= age < 60 for age in page["firma_silence_seconds"].values())
        assert set(page["firma_waiting_seconds"]) == {"bee", "cat"}
        assert all(0 <= age < 60 for age in page["firma_waiting_seconds"].values())
    assert seen[-1][0].weights, "fibfl++ mixes on the ring after its warm-up"
    assert after["firma_training_seconds_total"][""] == pytest.approx(outcomes[0].training)
    assert 0 < after["firma_mixing_seconds_total"][""] < outcomes[0].seconds
    assert sum(after["firma_sent_bytes_total"].values()) == outcomes[0].sent
    assert after["firma_refused_total"] == {'odd "kind"\\': 1}
    assert after["firma_handshakes_failed_total"][""] >= 0


def test_only_metrics_are_answered_and_the_port_is_given_back(make_ring):
    made = make_ring("fibfl", 2, 1, "iid")
    node = Node(Setup(made.ring, load_identity(made.identity(0)), made.data(0), made.state(0)), print)
    (port,) = free_ports(1)
    registry = Registry()
    with serving(registry, f"127.0.0.1:{port}") as found:
        assert get(port) == "", "a member that still reads its data"
        registry.register(RoundMetrics(made.ring).collect, partial(node_metrics, node))
        assert found == port
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(port, "/")
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        line.request("POST", "/metrics", b"x")
        assert line.getresponse().status == 501
        line.close()
        with pytest.raises(BadInput, match="cannot listen there"), serving(Registry(), str(port)):
            pass
        assert "firma_round" in get(port, "/metrics?a=b")
    with pytest.raises(urllib.error.URLError):
        get(port)
    with pytest.raises(BadInput, match="HOST:PORT"), serving(Registry(), "nonsense"):
        pass
    node.site.close()
    node.log.close()
    node.audit_log.close()
    node.evidence.close()
    node.driver.close()


def test_readers_that_hold_connections_open_are_few():
    (port,) = free_ports(1)
    files = Path("/proc/self/fd")
    with serving(Registry(), str(port)), ExitStack() as idle:
        before = len(list(files.iterdir()))
        for _ in range(200):
            idle.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        wait_until(lambda: len(list(files.iterdir())) <= before + 200 + 40, 4, "those that are too many are closed")
        idle.close()
        wait_until(lambda: answered(port), 10, "it answers again")


def answered(port):
    try:
        return get(port) == ""
    except OSError:
        return False


def test_labels_are_escaped():
    text = Family("firma_x", "gauge", "About.", {'a"b\\c\nd': 1.5}, "member").text()
    assert parsed(text) == {"firma_x": {'a"b\\c\nd': 1.5}}
    assert Family("firma_x", "gauge", "About.", {}, "member").text() == ""
