"""Checkpoints and views: where a site is after a crash at any moment, and the view that words give."""

import json
import shutil
from dataclasses import replace
from itertools import permutations

import pytest
import torch

from firma.errors import BadInput
from firma.peer.identity import load_identity
from firma.peer.membership.agreement import composed
from firma.peer.membership.proposer import agreed_order, as_good_an_order, rules_of
from firma.peer.membership.views import MemberState, Promise, Seat, View
from firma.peer.ring_file import checked, read_ring
from firma.peer.runtime import checkpoint
from firma.peer.runtime.local_training import LocalSite, load_own
from firma.peer.signing import seals_of


@pytest.fixture
def site(make_ring):
    made = make_ring("fibfl", 3, 9, "iid")
    found = LocalSite(made.ring, 0, load_own(made.data(0), made.ring.task), torch.device("cpu"))
    found.folder, found.digest = made.state(0), made.ring.digest
    yield found
    found.close()


def save(site, epoch, rounds):
    site.parameters = torch.full_like(site.parameters, 100.0 * epoch + rounds)
    checkpoint.write(site.folder, site, site.digest, epoch, (0, 1, 2), [0.5] * rounds, 5)


def held(site):
    return sorted(path.name for path in site.folder.iterdir())


def test_a_view_that_begins_earlier_sets_the_rounds_after_aside_until_they_are_reached_again(site):
    for rounds in range(8):
        save(site, 1, rounds)
    assert checkpoint.latest(site.folder) == 7
    assert len(held(site)) == 5, "older ones are gone"
    checkpoint.mark(site.folder, 5, 2)
    assert checkpoint.tidy(site.folder) == (2, 5)
    assert checkpoint.read(site.folder, 5, site.digest).epoch == 2
    assert checkpoint.latest(site.folder) == 5
    assert held(site)[-2:] == ["superseded-000006", "superseded-000007"], "nothing newer is deleted"
    assert checkpoint.nearest(site.folder, 7) == 5, "and nothing of another view is taken for a round of this one"
    save(site, 2, 6)
    assert checkpoint.tidy(site.folder) == (2, 6)
    assert held(site)[-1] == "superseded-000007"
    save(site, 2, 7)
    assert held(site) == [f"round-{rounds:06d}" for rounds in range(3, 8)]


def test_a_view_that_begins_at_nothing_deletes_no_round(site):
    """Pruning counts from what is saved, not from the newest number in the folder."""
    for rounds in range(8):
        save(site, 1, rounds)
    checkpoint.mark(site.folder, 0, 2)
    save(site, 2, 1)
    kept = [int(name.rpartition("-")[2]) for name in held(site)]
    assert {3, 4, 5, 6, 7} <= set(kept)
    assert checkpoint.latest(site.folder) == 1


def test_a_crash_between_the_mark_and_the_dropping_is_made_good_at_the_start(site, monkeypatch):
    for rounds in range(4):
        save(site, 1, rounds)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_set_aside_after", lambda folder, rounds: None)
        checkpoint.mark(site.folder, 2, 2)
    assert "round-000003" in held(site)
    assert checkpoint.latest(site.folder) == 2, "the newest view counts, not the highest round"
    assert checkpoint.tidy(site.folder) == (2, 2)
    assert held(site)[-2:] == ["round-000002", "superseded-000003"]


def test_a_draft_is_no_checkpoint(site):
    save(site, 1, 1)
    shutil.copytree(site.folder / "round-000001", site.folder / ".round-000002.draft")
    assert checkpoint.tidy(site.folder) == (1, 1)
    save(site, 1, 2)
    assert held(site) == ["round-000001", "round-000002"]


def test_who_was_away_comes_in_with_the_nearest(site):
    for rounds in (0, 1, 2, 6, 7):
        save(site, 1, rounds)
    assert [checkpoint.nearest(site.folder, rounds) for rounds in (2, 5, 6, 9)] == [2, 2, 6, 7]


def test_a_damaged_checkpoint_is_named(site):
    save(site, 1, 1)
    (site.folder / "round-000001" / "state.safetensors").write_bytes(b"junk")
    with pytest.raises(BadInput, match="remove it to continue from the round before"):
        checkpoint.read(site.folder, 1, site.digest)
    (site.folder / "round-000001" / "state.json").write_text(json.dumps({"rounds": 1}))
    with pytest.raises(BadInput, match="round-000001"):
        checkpoint.tidy(site.folder)


SHARES = [(1.0, *[0.0] * 9), (0.9, 0.1, *[0.0] * 8), (0.0, 1.0, *[0.0] * 8), (0.0, 0.9, 0.1, *[0.0] * 7)]


def promises(words):
    return {n: Promise((1, 0), word, None) for n, word in words.items()}


def test_the_same_words_give_the_same_view_and_only_who_is_ready_is_in(make_ring):
    made = make_ring("fibfl++", 5, 3, "iid")
    rules = rules_of(made.ring, seals_of(made.ring, load_identity(made.identity(0))))
    former = View(3, 7, tuple(Seat(n, n) for n in range(5)))
    words = {n: MemberState(n, 3, 7 + n % 2, shares=SHARES[n % 4]) for n in range(5)}
    view = composed(rules, former, promises(words))
    assert (view.number, view.start, view.behind) == (4, 7, ())
    assert sorted(view.order) == [0, 1, 2, 3, 4]
    assert composed(rules, former, promises(dict(reversed(words.items())))) == view
    without = {n: word for n, word in words.items() if n != 1}
    assert sorted(composed(rules, former, promises(without)).order) == [0, 2, 3, 4]
    asleep = words | {0: MemberState(0, 3, 7, ready=False, shares=SHARES[0])}
    assert sorted(composed(rules, former, promises(asleep)).order) == [1, 2, 3, 4]
    assert composed(rules, former, promises({n: words[n] for n in (0, 1)})) is None, "below the quorum"
    fresh = {n: replace(word, view_number=0, rounds=0) for n, word in without.items()}
    assert composed(rules, None, promises(fresh)) is None, "a federation begins with everybody"


def test_an_order_that_another_machine_rounds_to_is_as_good_and_a_worse_one_is_not(make_ring):
    ring = make_ring("fibfl++", 5, 3, "iid").ring
    words = {n: MemberState(n, shares=SHARES[n % 4]) for n in range(5)}
    order = agreed_order(ring, words)
    assert as_good_an_order(ring, words, order)
    assert as_good_an_order(ring, words, (order[0], *reversed(order[1:]))), "the same ring, the other way round"
    worse = [each for each in permutations(range(5)) if not as_good_an_order(ring, words, each)]
    assert worse


def test_a_quorum_is_what_agrees_safely_at_least(make_ring):
    ring = make_ring("fibfl", 4, 3, "iid").ring
    assert (ring.insiders, ring.needed) == (1, 3)
    values = ring.model_dump(mode="json")
    assert checked(values | {"quorum": 4}).needed == 4
    for wrong in (2, 5):
        with pytest.raises(BadInput, match="must be from 3 to 4 for 4 members of whom 1 may lie"):
            checked(values | {"quorum": wrong})


@pytest.mark.parametrize(("members", "insiders", "needed"), [(2, 0, 2), (3, 0, 2), (4, 1, 3), (5, 1, 4), (5, 0, 3)])
def test_the_ring_file_says_how_many_insiders_it_bears(make_ring, members, insiders, needed):
    """Any two quorums share more members than may lie; a ring of four or more bears one unless it says otherwise."""
    made = make_ring("fibfl", members, 3, "iid")
    values = made.ring.model_dump(mode="json")
    ring = checked(values | {"insiders": insiders})
    assert ring.needed == needed
    assert 2 * ring.needed - members > insiders
    assert (ring == made.ring) == (insiders == int(members >= 4))
    other = checked(values | {"insiders": 1 - insiders}) if members >= 4 else None
    assert other is None or other.digest != ring.digest, "it is part of what is agreed on"
    assert read_ring(made.path) == made.ring
    with pytest.raises(BadInput, match="requires at least 7 members"):
        checked(values | {"insiders": 2})


def test_a_site_does_not_begin_with_another_architecture_of_equal_shapes(site):
    save(site, 1, 2)
    checkpoint.begin(site, site.folder)
    facts = site.folder / "round-000002" / "state.json"
    written = json.loads(facts.read_text())
    facts.write_text(json.dumps({name: value for name, value in written.items() if name != "architecture"}))
    checkpoint.begin(site, site.folder)  # as version 0.2 wrote it
    facts.write_text(json.dumps(written | {"architecture": "0" * 32}))
    with pytest.raises(BadInput, match="holds another model"):
        checkpoint.begin(site, site.folder)
