"""The operator's page of a site: while a real ring trains, from the folder alone, and after members came and went."""

import json
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from firma.page.server import Cursor, serving
from firma.peer.identity import load_identity
from firma.peer.runtime.audit_log import audit
from firma.peer.runtime.node import Node, Setup
from firma.peer.runtime.notices import what_to_do
from firma.peer.runtime.site_page import LogTail, SitePage
from firma.peer.spoken import spoken
from tests.browser import CHROMIUM, browsing
from tests.processes import running

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def document(page, cursor=None):
    page._at = float("-inf")  # look now, not in a second
    found = page.changes(cursor or Cursor())
    return next(each["site"] for each in found if "site" in each)


def pulse(page):
    return next(each for each in page.changes(Cursor()) if "now" in each)


@pytest.fixture
def finished(make_ring):
    """A ring of three that has trained, the page of its first member, and what that showed after each round."""
    made = make_ring("fibfl++", 3, 4, "dir-0.5", federation=HOSTILE)
    page, seen, nodes = SitePage(made.state(0)), [], []
    before = page.changes(Cursor())

    def on_round(report):
        seen.append((report, document(page), pulse(page)))

    for number in range(3):
        setup = Setup(made.ring, load_identity(made.identity(number)), made.data(number), made.state(number))
        nodes.append(Node(setup, on_round if number == 0 else lambda report: None))
    page.attach(nodes[0])
    threads = [threading.Thread(target=node.run, daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return made, page, before, seen


def test_a_ring_as_its_operator_sees_it(finished):
    made, page, before, seen = finished
    assert "has not written" in before[0]["site"]["waiting"], "nothing is there before the member starts"
    assert [each["round"] for _, each, _ in seen] == [1, 2, 3, 4]
    for report, found, pulse in seen:
        assert found["value"] == pytest.approx(report.accuracy)
        assert {
            each["name"]: each["weight"] for each in found["members"] if each["weight"] is not None
        } == report.weights
        assert [each["in"] for each in found["members"]] == [True] * 3
        assert [each["me"] for each in found["members"]] == [True, False, False]
        assert [each["neighbour"] for each in found["members"]] == [False, True, True]
        assert {each["since_round"] for each in found["members"]} == {1}
        assert set(pulse["silence"]) >= {"bee", "cat"}
        assert all(seconds < 60 for seconds in pulse["silence"].values())
        assert found["process"]
        assert (found["quorum"], found["patience"], found["rounds"]) == (2, 10.0, 4)
    last = document(page)
    assert last["finished"]
    assert last["digest"] == spoken(made.ring.digest)
    assert [row[0] for row in last["curve"]] == [1, 2, 3, 4]
    assert [row[1] for row in last["curve"]] == pytest.approx([report.accuracy for report, _, _ in seen])
    report = audit(made.state(0) / "audit.jsonl")
    assert {each["name"]: each["sent"] for each in last["members"]} == {"ant": 0, **report.receivers}
    assert last["audit"]["passed"] is True
    assert last["audit"]["messages"] == report.messages
    assert all(700 < each["days"] < 731 for each in last["members"])
    assert set(last["audit"]["words"]) == set(report.numbers)
    assert all(last["audit"]["words"].values()), "every number in words"
    waits = [each for each in last["notices"] if each["says"].startswith("waiting for")]
    assert all(each["todo"] == "Nothing: that is over, rounds went on." for each in waits)
    statement = "\n".join(last["statement"])
    assert "(finished)" in statement
    assert "Rounds done: 4 of 4. Took part: rounds 1-4 all members." in statement
    assert f"It sent {report.messages:,} messages" in statement
    assert page.data("statement.txt", {})[1].decode().splitlines() == last["statement"]
    assert page.data("ring.toml", {}) is None


def test_the_folder_alone_tells_the_same_but_for_silences(finished):
    made, page, _, _ = finished
    live, outside = document(page), document(SitePage(made.state(0)))
    different = {name for name in live if live[name] != outside[name]}
    assert different == {"live"}
    assert pulse(SitePage(made.state(0)))["silence"] == {}


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (make browser)")
def test_the_page_in_a_browser_believes_no_text(finished, tmp_path):
    made, *_ = finished
    with (made.state(0) / "log.jsonl").open("a") as log:
        log.write(json.dumps({"time": 1.0, "level": "warning", "event": "notice", "says": f"paused: {HOSTILE}"}) + "\n")
    with ExitStack() as stack:
        browser = stack.enter_context(browsing(tmp_path / "profile"))
        served = stack.enter_context(serving(SitePage(made.state(0))))
        browser.size(360, 800, dark=True)
        browser.visit(served.url)
        browser.wait("document.querySelectorAll('#table tbody tr').length === 3")
        assert "onerror" in browser.text("#title")
        assert "onerror" in browser.text("#notices")
        assert "What to do: Nothing is lost" in browser.text("#notices")
        assert "silent" not in browser.text("#table")
        assert browser.run("document.images.length") == 0
        assert browser.run("document.title") != "owned"
        assert browser.run("document.documentElement.scrollWidth") <= 360
        assert browser.text("#statement").startswith("Statement of ant")
        assert browser.console == []
        assert all(each.startswith(served.url) for each in browser.requests)


def test_join_serves_the_page_while_it_waits_for_the_others(make_ring):
    made = make_ring("fibfl", 3, 2, "iid")
    words = ["join", made.path, "--data", made.data(0), "--identity", made.identity(0), "--state", made.state(0)]
    with running([sys.executable, "-m", "firma", *words, "--page", "0"], stderr=subprocess.PIPE) as process:
        line = next(line for line in process.stderr if "page:" in line)
        url = line.split()[-1]
        assert url.startswith("http://127.0.0.1:")
        next(line for line in process.stderr if "waiting for" in line)
        with urllib.request.urlopen(f"{url}events", timeout=60) as stream:
            told = next(
                found for raw in stream if raw.startswith(b"data: ") and "site" in (found := json.loads(raw[6:]))
            )
        assert told["site"]["condition"].startswith("waiting for bee, cat")
        assert [each["in"] for each in told["site"]["members"]] == [False] * 3
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def written(path: Path, *events):
    with path.open("a") as file:
        file.writelines(json.dumps({"time": 10.0 + k, "level": "info"} | each) + "\n" for k, each in enumerate(events))


def test_members_that_came_and_went(tmp_path):
    path = tmp_path / "log.jsonl"
    rounds = [{"event": "round", "number": number, "accuracy": number / 10} for number in range(1, 6)]
    written(path, {"event": "view", "number": 1, "ring": ["a", "b", "c"], "from_round": 1}, *rounds)
    tail = LogTail(path)
    tail.read()
    assert sorted(tail.rounds) == [1, 2, 3, 4, 5]
    written(path, {"event": "view", "number": 2, "ring": ["a", "c"], "from_round": 4})
    tail.read()
    assert sorted(tail.rounds) == [1, 2, 3], "the view went back to round 4"
    written(path, {"event": "view", "number": 3, "ring": ["a", "b", "c"], "from_round": 6})
    tail.read()
    page = SitePage(tmp_path)
    page._log = tail
    assert [page._seated_since(name)["number"] for name in ("a", "b", "c")] == [1, 3, 1]
    assert page._seated_since("d") is None


def test_a_log_that_is_rotated_is_read_again(tmp_path):
    path = tmp_path / "log.jsonl"
    written(path, {"event": "notice", "says": "one"}, {"event": "refused", "kind": "stale", "sender": "b"})
    tail = LogTail(path)
    tail.read()
    path.rename(tmp_path / "log.jsonl.1")
    written(path, {"event": "notice", "says": "two"})
    tail.read()
    assert [each["says"] for each in tail.notices] == ["one", "two"]
    assert tail.refused["stale"] == 1


def test_half_a_line_waits_for_the_rest(tmp_path):
    path = tmp_path / "log.jsonl"
    line = json.dumps({"time": 1.0, "event": "notice", "says": "whole"}) + "\n"
    path.write_text(line[:20])
    tail = LogTail(path)
    tail.read()
    assert not tail.notices
    with path.open("a") as file:
        file.write(line[20:])
    tail.read()
    assert [each["says"] for each in tail.notices] == ["whole"]


@pytest.mark.parametrize(
    ("notice", "word"),
    [
        ("paused: bee has been silent for 10 s (no answer); 3 of 5 are needed, 2 here", "Call"),
        ("waiting for bee, cat", "firma doctor"),
        ("view 2: ant-cat, from round 3", "Nothing"),
        ("view 3 was decided without this site; it asks to be let in again", "network"),
        ("warning: the certificate of bee expires on 2027-01-01, in 3 days; plan a new one", "firma init"),
    ],
)
def test_what_to_do(notice, word):
    assert word in what_to_do(notice)
