"""Results that members choose to share: a real ring in which two of three do, and what nobody is made to believe."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from firma.errors import BadInput
from firma.page.server import serving
from firma.peer.agreed_text import agreed_lines
from firma.peer.identity import load_identity
from firma.peer.ring_file import checked, read_ring, ring_toml
from firma.peer.runtime.audit_log import AuditLog, audit
from firma.peer.runtime.consent import Consent
from firma.peer.runtime.federation_results import ResultBoard, check_sharing, read_summary
from firma.peer.runtime.node import Node, Setup
from firma.peer.runtime.site_page import SitePage
from firma.peer.runtime.status import read_status
from firma.peer.statement_folder import StatementFolder
from firma.peer.wire.results import Result, is_genuine, sign_result
from firma.peer.wire.statements import Statements, decode_statements, encode_statements
from firma.peer.wire.terms import Terms, WireError, federation_tag
from tests.browser import CHROMIUM, browsing

from .conftest import made_ring
from .fuzz_targets import TERMS
from .test_site_page import HOSTILE, document

LABELS = [*"0123456789", HOSTILE]
TASK = {"shape": [8, 8], "labels": LABELS, "scale": 1 / 16}
ROUNDS = 3


def trained(made, choices):
    """The outcome of each member, which shares as it chose, in `made.state(number)`."""
    outcomes, nodes = {}, []
    for number, choice in enumerate(choices):
        own = load_identity(made.identity(number))
        setup = Setup(made.ring, own, made.data(number), made.state(number), share_results=choice)
        nodes.append(Node(setup, lambda report: None))  # one after the other: their models start from the same seed

    def run(number):
        outcomes[number] = nodes[number].run()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(choices))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert len(outcomes) == len(choices), "a member failed, or did not end"
    return [outcomes[number] for number in range(len(choices))]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharing")
    return made_ring(folder, "fibfl++", 3, ROUNDS, "dir-0.5", summary="classes", task=TASK, gathering=240.0)


@pytest.fixture(scope="module")
def shared(made):
    """ant shares classes, bee its accuracy alone, cat nothing."""
    return trained(made, ("classes", "accuracy", "none"))


def test_everybody_sees_the_results_of_those_that_share(made, shared):
    expected = {
        number: {
            "samples": len(np.load(made.data(number))["y_test"]),
            "value": round(shared[number].history[-1], 6),
        }
        for number in (0, 1)
    }
    for outcome in shared:
        assert outcome.results == shared[0].results, "all have the last results of all"
        ant, bee = outcome.results.sites
        assert (ant.site, ant.round, bee.site, bee.round) == ("ant", ROUNDS, "bee", ROUNDS)
        for number, each in enumerate((ant, bee)):
            assert {"samples": each.samples, "value": each.value} == expected[number]
        counts = np.bincount(np.load(made.data(0))["y_test"], minlength=len(LABELS))
        assert ant.support == dict(zip(LABELS, counts.tolist(), strict=True))
        assert bee.support == {}, "it shares its accuracy alone"
        assert outcome.results.silent == ("cat",)
        assert outcome.results.mean == pytest.approx((ant.value + bee.value) / 2)
        assert outcome.results.lowest == min(ant.value, bee.value)
    assert "2 of 3 sites share results: mean accuracy" in shared[2].results.line()


def test_status_page_and_statement_show_the_table(command, made, shared):
    code, out, _ = command("status", made.state(2))
    assert code == 0
    assert f"results of the federation: {shared[2].results.line()}" in out
    assert "cat  shares nothing, or nothing has arrived" in out
    code, out, _ = command("status", made.state(2), "--json")
    assert json.loads(out)["results"] == json.loads(json.dumps(shared[2].results.as_json()))
    assert read_status(made.state(1)).results == shared[1].results
    found = document(SitePage(made.state(2)))
    assert found["results"] == shared[2].results.as_json() | {"line": shared[2].results.line()}
    assert any(line.startswith("ant  round 3  accuracy 0.") for line in found["statement"])


def test_the_audit_says_who_shared_what(command, made, shared):
    del shared
    told = [set(audit(made.state(number) / "audit.jsonl").numbers) for number in range(3)]
    assert told[0] >= {"results", "class support", "results of others"}
    assert told[1] >= {"results", "results of others"}
    assert "class support" not in told[1]
    assert "results of others" in told[2], "whoever shares nothing passes on what others signed"
    assert not told[2] & {"results", "class support"}
    for number in range(3):
        code, out, _ = command("audit", made.state(number) / "audit.jsonl")
        assert code == 0, out
        assert ("how many of this site's test samples are of each class" in out) == (number == 0)


def test_sharing_changes_no_bit_of_training_and_nothing_leaves_without_it(made, shared, tmp_path):
    """The same ring file, and nobody opts in."""
    again = replace(made, folder=tmp_path)
    for name in ("ant", "bee", "cat"):
        (tmp_path / name).mkdir()
        for part in ("identity", "data.npz"):
            (tmp_path / name / part).symlink_to(made.folder / name / part)
    silent = trained(again, ("none",) * 3)
    for number in range(3):
        assert torch.equal(silent[number].parameters, shared[number].parameters)
        assert silent[number].results.silent == ("ant", "bee", "cat")
        numbers = set(audit(again.state(number) / "audit.jsonl").numbers)
        assert not numbers & {"results", "class support", "results of others"}
        assert not (again.state(number) / "summary.json").exists()


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (make browser)")
def test_the_table_in_a_browser(made, shared, tmp_path):
    del shared
    with browsing(tmp_path / "profile") as browser, serving(SitePage(made.state(1))) as served:
        browser.size(360, 800, dark=False)
        browser.visit(served.url)
        browser.wait("document.querySelectorAll('#results tbody tr').length === 3")
        assert "mean accuracy" in browser.text("#results-said")
        told = browser.text("#results")
        assert "onerror" in told, "a label of the ring file is written as text"
        assert "not shared" in told
        assert "shares nothing" in told
        assert browser.run("document.querySelectorAll('#results .support li').length") == len(LABELS)
        assert browser.run("document.images.length") == 0
        assert browser.run("document.title") != "owned"
        assert browser.run("document.documentElement.scrollWidth") <= 360
        assert browser.console == []


# What nobody can make others believe


def of(made, number, **changes):
    """A result of a member, signed by it."""
    result = replace(Result(number, 1, 2, 0.5, 22, (2,) * len(LABELS)), **changes)
    return sign_result(load_identity(made.identity(number)), made.ring.digest, result)


@pytest.fixture
def board(made, tmp_path):
    """What cat, who shares nothing, knows."""
    return ResultBoard(made.ring, 2, load_identity(made.identity(2)), "none", tmp_path)


def test_the_newest_result_of_a_member_counts(made, board, tmp_path):
    first, later, again = of(made, 0), of(made, 0, round=3), of(made, 0, view=2, round=1)
    for each, kept in ((first, first), (later, later), (first, later), (again, again), (later, again)):
        assert board.take((each,)) == ()
        assert board.outgoing() == (kept,), "a round that is done again, in a later view, is newer"
    board.save()
    assert read_summary(tmp_path, made.ring) == board.summary()
    (tmp_path / "summary.json").write_text((tmp_path / "summary.json").read_text().replace("0.5", "0.9"))
    assert read_summary(tmp_path, made.ring).sites == (), "what nobody signed is not shown"


def test_what_a_member_has_not_signed_is_refused(made, board):
    mine, stranger = of(made, 0), sign_result(load_identity(made.identity(1)), made.ring.digest, of(made, 0).result)
    elsewhere = sign_result(load_identity(made.identity(0)), b"o" * 32, mine.result)
    changed = replace(mine, result=replace(mine.result, value=0.9))
    for forged in (stranger, elsewhere, changed, replace(mine, signature=bytes(64))):
        assert not is_genuine(made.ring, forged)
        assert board.take((forged,)) == ("ant",)
    assert board.outgoing() == ()
    assert board.take((of(made, 2),)) == (), "its own, by a process that has forgotten it"
    assert board.outgoing() == (), "what it does not share now it does not send"


def test_a_site_that_no_longer_shares_does_not_send_its_old_result(made, tmp_path):
    own = load_identity(made.identity(0))
    before = ResultBoard(made.ring, 0, own, "accuracy", tmp_path)
    before.post(1, 2, 0.5, 22, (2,) * len(LABELS))
    assert [each.result.support for each in before.outgoing()] == [()], "its classes stay"
    before.save()
    after = ResultBoard(made.ring, 0, own, "none", tmp_path)
    after.post(1, 3, 0.6, 22, (2,) * len(LABELS))
    assert after.outgoing() == ()
    assert [each.round for each in after.summary().sites] == [2], "what it said is known"


@pytest.mark.parametrize(
    "change",
    [
        {"value": 1.5}, {"value": -0.1}, {"value": 1}, {"value": float("nan")}, {"value": "0.5"}, {"round": 0},
        {"round": ROUNDS + 1}, {"view": 0}, {"view": 1 << 32}, {"samples": 21}, {"samples": -1}, {"samples": 10**12},
        {"support": (2,) * 10}, {"support": (22,) * 11}, {"support": (-2, 24, *(0,) * 9)}, {"member": 3},
        {"support": ("2",) * 11}, {"round": True},
    ],
    ids=str,
)  # fmt: skip
def test_absurd_results_are_refused_before_anything_is_believed(made, change):
    genuine = of(made, 0)
    raw = encode_statements(Statements(made.ring.digest, {}, (genuine,)))
    assert decode_statements(raw, made.ring).results == (genuine,)
    absurd = encode_statements(Statements(made.ring.digest, {}, (of(made, 0, **change),)))
    with pytest.raises(WireError, match="statements of the wrong form"):
        decode_statements(absurd, made.ring)


def test_only_what_was_agreed_on_is_read(made):
    raw = encode_statements(Statements(made.ring.digest, {}, (of(made, 0),)))
    for summary in ("none", "accuracy"):
        ring = made.ring.model_copy(update={"summary": summary})
        with pytest.raises(WireError):
            decode_statements(raw.replace(made.ring.digest, ring.digest), ring)
    twice = encode_statements(Statements(made.ring.digest, {}, (of(made, 0), of(made, 0))))
    with pytest.raises(WireError):
        decode_statements(twice, made.ring)


def test_results_reach_a_member_without_a_direct_line(made, tmp_path):
    """ant and cat only ever talk to bee, who shares nothing; a forged result goes no further than to bee."""
    boards, all_of, refused = [], {}, []

    def exchange(sender):
        def hand(member, raw, timeout):
            del timeout
            if {sender, member} == {0, 2}:
                raise OSError("no line")
            return all_of[member].answer(sender, raw)

        return hand

    for number in range(3):
        own, folder = load_identity(made.identity(number)), tmp_path / str(number)
        folder.mkdir()
        choice = "none" if number == 1 else "classes"
        boards.append(ResultBoard(made.ring, number, own, choice, folder))
        all_of[number] = Consent(
            made.ring, number, StatementFolder(made.ring, own), exchange(number), lambda: None, lambda text: None,
            results=boards[number], on_refused=lambda member, why: refused.append(why),
        )  # fmt: skip
    boards[0].post(1, 1, 0.25, 11, (1,) * len(LABELS))
    boards[2].post(1, 1, float("nan"), 11, (1,) * len(LABELS))
    boards[1].post(1, 1, 0.75, 11, (1,) * len(LABELS))
    assert all_of[0]._curious(False) == {1, 2}
    all_of[0].tell_member(1)
    all_of[0].tell_member(2)
    all_of[2].tell_member(1)
    all_of[1].tell_member(0)
    for board in boards:
        assert [(each.site, each.value) for each in board.summary().sites] == [("ant", 0.25), ("cat", None)]
    assert all_of[0]._curious(False) == {2}, "bee has everything, cat is not known to"
    assert all_of[0]._curious(True) == {1, 2}, "at the end each may have a last one to tell"
    forged = sign_result(load_identity(made.identity(0)), made.ring.digest, Result(2, 2, 2, 1.0, 11))
    raw = encode_statements(Statements(made.ring.digest, {}, (forged,)))
    with pytest.raises(WireError, match="a result that cat has not signed"):
        all_of[1].answer(0, raw)
    all_of[0].answer = lambda sender, found: raw
    all_of[1].tell_member(0)
    assert refused == ["a result that cat has not signed"]
    assert [(each.site, each.value) for each in boards[1].summary().sites] == [("ant", 0.25), ("cat", None)]


# What is agreed, and what is recorded


def test_a_ring_file_without_a_summary_is_as_it_was(made, tmp_path):
    plain = made.ring.model_copy(update={"summary": "none"})
    assert "summary" not in ring_toml(plain)
    (tmp_path / "ring.toml").write_text(ring_toml(made.ring))
    assert read_ring(tmp_path / "ring.toml") == made.ring
    assert plain.digest != made.ring.digest
    assert dict(agreed_lines(plain))["results"] == "each site's stay there"
    said = dict(agreed_lines(made.ring))["results"]
    assert "may choose" in said
    assert "how many of them are of each class" in said
    for wanted, allowed in (("none", True), ("accuracy", False), ("classes", False)):
        if allowed:
            check_sharing(plain, wanted)
        else:
            with pytest.raises(BadInput, match="agreed that no results are shared"):
                check_sharing(plain, wanted)
    with pytest.raises(BadInput, match=r"no numbers per class are shared.*pass --share-results accuracy"):
        check_sharing(made.ring.model_copy(update={"summary": "accuracy"}), "classes")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"summary": "everything"}, "'none', 'accuracy' or 'classes'"),
        ({"task": TASK | {"labels": [str(n) for n in range(7000)]}}, "21,000 numbers, at most 20,000"),
        ({"task": TASK | {"kind": "regression", "edges": [1.0]}}, "regression has no classes"),
    ],
)
def test_summaries_that_cannot_be(made, changes, says):
    values = made.ring.model_dump(mode="json", exclude=made.ring.absent)
    with pytest.raises(BadInput, match=says):
        checked(values | changes)


def test_the_largest_summary_fits_into_a_message(made):
    """As many labels as are allowed, each with the largest count."""
    labels = [str(n) for n in range(20_000 // 3)]
    ring = made.ring.model_copy(update={"task": made.ring.task.model_copy(update={"labels": tuple(labels)})})
    counts = (0, 10**9, *(0,) * (len(labels) - 2))
    results = [Result(n, (1 << 32) - 1, ROUNDS, 0.123456, 10**9, counts) for n in range(3)]
    signed = tuple(sign_result(load_identity(made.identity(each.member)), ring.digest, each) for each in results)
    raw = encode_statements(Statements(ring.digest, {}, signed))
    widest = len(raw) + 3 * len(labels) * 9
    assert widest < 1 << 20
    assert decode_statements(raw, ring).results == signed


def test_the_audit_fails_a_site_whose_results_left_without_its_consent(made, tmp_path):
    terms = Terms(federation_tag("test"), made.ring.digest, TERMS.signature, len(LABELS))
    raw = encode_statements(Statements(made.ring.digest, {}, (of(made, 0), of(made, 1))))
    path = tmp_path / "audit.jsonl"
    for choice, breaches in (("classes", 0), ("accuracy", 1), ("none", 3)):  # each start of the process adds its choice
        log = AuditLog(path, made.ring, 0, terms, shares=choice)
        log.record_statements(1, raw)
        log.close()
        assert len(audit(path).breaches) == breaches, audit(path).breaches
    assert audit(path).breaches[-1] == "turn 0: class support went to bee"
