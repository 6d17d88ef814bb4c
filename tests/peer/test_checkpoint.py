"""Checkpoints and views: where a site is after a crash at any moment, and the view that words give."""

import json
import shutil

import pytest
import torch

from firma.errors import BadInput
from firma.peer.membership.proposer import rules_of
from firma.peer.membership.views import MemberState
from firma.peer.ring_file import checked
from firma.peer.runtime import checkpoint
from firma.peer.runtime.local_training import LocalSite, load_own


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


def test_a_view_that_begins_earlier_drops_the_rounds_after(site):
    for rounds in range(8):
        save(site, 1, rounds)
    assert checkpoint.latest(site.folder) == 7
    assert len(held(site)) == 5, "older ones are gone"
    checkpoint.mark(site.folder, 5, 2)
    assert checkpoint.tidy(site.folder) == (2, 5)
    assert checkpoint.read(site.folder, 5, site.digest).epoch == 2
    assert checkpoint.latest(site.folder) == 5
    save(site, 2, 6)
    assert checkpoint.tidy(site.folder) == (2, 6)


def test_a_crash_between_the_mark_and_the_dropping_is_made_good_at_the_start(site, monkeypatch):
    for rounds in range(4):
        save(site, 1, rounds)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_drop_after", lambda folder, rounds: None)
        checkpoint.mark(site.folder, 2, 2)
    assert "round-000003" in held(site)
    assert checkpoint.latest(site.folder) == 2, "the newest view counts, not the highest round"
    assert checkpoint.tidy(site.folder) == (2, 2)
    assert held(site)[-1] == "round-000002"


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


def test_the_same_words_give_the_same_view_and_only_who_is_ready_is_in(make_ring):
    ring = make_ring("fibfl++", 5, 3, "iid").ring
    compose = rules_of(ring).compose
    words = {n: MemberState(n, 3, 7 + n % 2, shares=SHARES[n % 4]) for n in range(5)}
    start, order = compose(4, words)
    assert start == 7
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert compose(4, dict(reversed(words.items()))) == (start, order)
    without = {n: word for n, word in words.items() if n != 1}
    assert sorted(compose(4, without)[1]) == [0, 2, 3, 4]
    asleep = words | {0: MemberState(0, 3, 1, ready=False, shares=SHARES[0])}
    assert compose(4, asleep) == (7, compose(4, {n: words[n] for n in range(1, 5)})[1])
    assert compose(4, {n: words[n] for n in (0, 1)}) is None, "below the quorum"
    assert compose(1, without) is None, "a federation begins with everybody"


def test_a_quorum_is_a_majority_at_least(make_ring):
    ring = make_ring("fibfl", 4, 3, "iid").ring
    assert ring.needed == 3
    values = ring.model_dump(mode="json")
    assert checked(values | {"quorum": 4}).needed == 4
    for wrong in (2, 5):
        with pytest.raises(BadInput, match="more than half"):
            checked(values | {"quorum": wrong})


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
