"""Control messages and memory in bytes: what goes in comes out, and what is no note is refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firma.errors import BadInput
from firma.models import SplitModel, mlp
from firma.peer.membership.views import (
    Commit,
    Committed,
    ControlMessage,
    Echo,
    MemberState,
    Memory,
    Prepare,
    Prepared,
    Promise,
    Proof,
    Propose,
    Receipt,
    Refusal,
    Seat,
    View,
)
from firma.peer.runtime.audit_log import _breaches
from firma.peer.runtime.promises import Promises, published_proportions
from firma.peer.wire.control import (
    decode_control,
    decode_memory,
    encode_control,
    encode_memory,
    numbers_in,
    promises_in,
)
from firma.peer.wire.terms import Terms, WireError, federation_tag, signature

MEMBERS, ROUNDS = 5, 40
TERMS = Terms(federation_tag("test"), b"r" * 32, signature(SplitModel(*mlp((3,), 2, 4, 3)).layout()), 3)
ballots = st.tuples(st.integers(1, 2**40), st.integers(0, MEMBERS - 1))
processes = st.integers(0, 2**63)
seals = st.binary(min_size=64, max_size=64)


@st.composite
def views(draw):
    who = draw(st.permutations(range(MEMBERS)))[: draw(st.integers(3, MEMBERS))]
    seats = tuple(Seat(number, draw(processes)) for number in who)
    behind = tuple(sorted(who[: draw(st.integers(0, 2))]))
    return View(draw(st.integers(1, 2**32 - 1)), draw(st.integers(0, ROUNDS)), seats, behind)


@st.composite
def votes(draw):
    who = sorted(draw(st.sets(st.integers(0, MEMBERS - 1))))
    return tuple((number, draw(seals)) for number in who)


@st.composite
def receipts(draw):
    who = sorted(draw(st.sets(st.integers(0, MEMBERS - 1), max_size=2)))
    return tuple(Receipt(n, draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, ROUNDS)), draw(seals)) for n in who)


words = st.builds(
    MemberState, processes, st.integers(0, 2**32 - 1), st.integers(0, ROUNDS), st.booleans(),
    st.sampled_from([(), (0.5, 0.25, 0.25)]),
)  # fmt: skip
prepared = st.builds(Prepared, ballots, views(), votes())
promises = st.builds(Promise, ballots, words, st.none() | prepared, receipts(), seals)
justified = st.lists(st.tuples(st.integers(0, MEMBERS - 1), promises), max_size=2).map(tuple)
bodies = st.one_of(
    st.none(), st.builds(Prepare, ballots), promises, st.builds(Propose, ballots, views(), justified),
    st.builds(Echo, ballots, seals), st.builds(Commit, prepared), st.builds(Committed, ballots, seals),
    st.builds(Refusal, ballots),
)  # fmt: skip
proofs = st.none() | st.builds(Proof, ballots, votes())
notes = st.builds(ControlMessage, st.none() | views(), bodies, proofs)


def decoded(raw):
    return decode_control(TERMS, raw, MEMBERS, ROUNDS)


@settings(deadline=None, max_examples=150)
@given(notes)
def test_a_note_comes_back_as_it_was(note):
    assert decoded(encode_control(TERMS, note)) == note


@settings(deadline=None, max_examples=300)
@given(notes, st.data())
def test_a_changed_note_is_refused_or_is_another_note(note, data):
    raw = bytearray(encode_control(TERMS, note))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    try:
        found = decoded(bytes(raw))
    except WireError:
        return
    assert found.view is None or (len(found.view.ring) > MEMBERS // 2 and found.view.start <= ROUNDS)


def said(change):
    plain = {"view": None, "proof": None, "kind": "Promise", "body": {
        "ballot": [1, 0], "prepared": None, "receipts": [[1, 2, 3, SEAL]], "signature": SEAL,
        "word": {"process": 1, "epoch": 0, "rounds": 0, "ready": True, "shares": [], "against": []},
    }}  # fmt: skip
    change(plain)
    return (
        encode_control(TERMS, ControlMessage(None))[: -len(b'{"view":null,"proof":null}')] + json.dumps(plain).encode()
    )


SEAL = "5a" * 64
VIEW = {"epoch": 1, "start": 0, "ring": [{"member": n, "process": 1} for n in range(3)], "behind": []}


@pytest.mark.parametrize(
    "change",
    [
        lambda note: note.update(kind="Order"),
        lambda note: note.update(kind="__class__"),
        lambda note: note["body"].update(ballot=[1, 5]),
        lambda note: note["body"].update(ballot=[0, 0]),
        lambda note: note["body"].update(ballot=[True, 0]),
        lambda note: note["body"].update(extra=[0.1] * 50),
        lambda note: note["body"]["word"].update(rounds=ROUNDS + 1),
        lambda note: note["body"]["word"].update(ready=1),
        lambda note: note["body"]["word"].update(shares=[0.5, 0.5]),
        lambda note: note["body"]["word"].update(shares=[2.0, -0.5, -0.5]),
        lambda note: note["body"]["word"].update(shares=[float("nan")] * 3),
        lambda note: note.update(view=VIEW | {"ring": VIEW["ring"][:2]}),
        lambda note: note.update(view=VIEW | {"ring": VIEW["ring"][:2] * 2}),
        lambda note: note.update(view=VIEW | {"ring": [{"member": n, "process": 1} for n in (0, 1, 7)]}),
        lambda note: note.update(view=VIEW | {"epoch": 0}),
        lambda note: note.update(view=VIEW | {"start": -1}),
        lambda note: note.update(view=VIEW | {"behind": [4]}),
        lambda note: note.update(view=VIEW | {"behind": [1, 0]}),
        lambda note: note.update(view=VIEW | {"behind": [0, 1, 2]}),
        lambda note: note.update(view=VIEW | {"behind": [0] * 1000}),
        lambda note: note.update(proof=[[1, 0], [[0, SEAL], [0, SEAL]]]),
        lambda note: note.update(proof=[[1, 0], [[1, SEAL], [0, SEAL]]]),
        lambda note: note.update(proof=[[1, 0], [[7, SEAL]]]),
        lambda note: note.update(proof=[[1, 0], [[0, SEAL[:-2]]]]),
        lambda note: note.update(proof=[[1, 0], [[0, SEAL[:-2] + "xy"]]]),
        lambda note: note.update(more=[0.1] * 50),
        lambda note: note["body"].update(signature=SEAL * 2),
        lambda note: note["body"].update(signature=None),
        lambda note: note["body"].update(receipts=[[1, 2, 3, SEAL]] * 2),
        lambda note: note["body"].update(receipts=[[1, 2, ROUNDS + 1, SEAL]]),
        lambda note: note["body"].update(prepared=[[1, 0], VIEW, [[0, SEAL]], 7]),
        lambda note: note.update(kind="Commit", body={"prepared": None}),
        lambda note: note.update(view=7),
        lambda note: note.pop("body"),
    ],
)
def test_a_note_that_names_what_is_not_there_is_refused(change):
    assert decoded(said(lambda note: None)).body.state.process == 1
    with pytest.raises(WireError):
        decoded(said(change))


def test_notes_of_others_and_deep_nests_are_refused():
    raw = encode_control(TERMS, ControlMessage(None))
    for bad in (
        b"",
        raw[:20],
        b"X" + raw[1:],
        raw[:30] + b"q" + raw[31:],
        raw[:54] + b"[" * 100_000,
        raw + b" " * 2**20,
    ):
        with pytest.raises(WireError):
            decoded(bad)


def test_the_audit_file_says_what_a_note_tells():
    told = Promise((1, 0), MemberState(1, shares=(0.5, 0.25, 0.25)), None)
    assert numbers_in(ControlMessage(None, told)) == ["rounds", "proportions"]
    passed_on = Propose((1, 0), View(1, 0, ()), ((1, told),))
    assert numbers_in(ControlMessage(None, passed_on)) == ["rounds", "proportions"]
    assert numbers_in(ControlMessage(None, Prepare((1, 0)))) == ["rounds"]


@settings(deadline=None, max_examples=60)
@given(
    st.builds(
        Memory, st.none() | views(), ballots | st.just((0, -1)),
        st.none() | st.tuples(ballots, st.binary(min_size=32, max_size=32)), st.none() | prepared, proofs,
    )
)  # fmt: skip
def test_a_memory_comes_back_as_it_was(memory):
    assert decode_memory(json.loads(json.dumps(encode_memory(memory))), MEMBERS, ROUNDS) == memory


def test_promises_survive_and_belong_to_their_ring(make_ring, tmp_path):
    ring = make_ring("fibfl", 3, 4, "iid").ring
    promises = Promises(tmp_path, ring)
    assert promises.read() is None
    view = View(1, 0, (Seat(0, 7), Seat(2, 9)))
    memory = Memory(None, (3, 1), ((2, 0), view.digest), Prepared((2, 0), view, ((0, bytes(64)), (2, bytes(64)))))
    promises.write(memory)
    assert Promises(tmp_path, ring).read() == memory
    with pytest.raises(BadInput, match="another ring file"):
        Promises(tmp_path, ring.model_copy(update={"seed": 3})).read()
    old = {"view": None, "promised": [0, -1], "accepted": None}
    (tmp_path / "promises.json").write_text(json.dumps({"ring": ring.digest.hex(), "memory": old}))
    with pytest.raises(BadInput, match="written by an earlier version of FIRMA"):
        promises.read()
    (tmp_path / "promises.json").write_text('{"ring": ')
    with pytest.raises(BadInput, match="must not come back"):
        promises.read()


def test_proportions_are_told_once(tmp_path):
    assert published_proportions(tmp_path, (0.25, 0.75)) == (0.25, 0.75)
    assert published_proportions(tmp_path, (0.5, 0.5)) == (0.25, 0.75), "new noise at every start would average out"


@pytest.mark.parametrize("members", [2, 5, 20])
def test_the_largest_honest_control_messages_are_within_what_the_audit_allows(members):
    """And not far from it: there is no room for a head beside them."""
    classes = 10
    terms = Terms(TERMS.federation, TERMS.ring, TERMS.signature, classes)
    every = tuple((n, b"\xff" * 64) for n in range(members))
    view = View(2**32 - 1, 10**6, tuple(Seat(n, 2**63) for n in range(members)), tuple(range(members - 1)))
    prepared = Prepared((2**40, members - 1), view, every)
    receipts = tuple(Receipt(n, 2**32 - 1, 10**6, b"\xff" * 64) for n in range(members))
    shares = (0.123456789012345678,) * classes
    promise = Promise(
        (2**40, members - 1), MemberState(2**63, 2**32 - 1, 10**6, False, shares), prepared, receipts, b"\xff" * 64
    )
    proof = Proof((2**40, members - 1), every)
    bodies = [
        promise,
        Commit(prepared),
        Propose((2**40, members - 1), view, tuple((n, promise) for n in range(members))),
    ]
    for body in bodies:
        note = ControlMessage(view, body, proof)
        line = {
            "turn": 0, "to": "bee", "tensors": [], "numbers": numbers_in(note), "promises": promises_in(note),
            "bytes": len(encode_control(terms, note)),
        }  # fmt: skip
        assert not _breaches(line, {}, classes, members, "none"), (members, type(body).__name__, line["bytes"])
        assert _breaches(line | {"bytes": 3 * line["bytes"] + 2000}, {}, classes, members, "none")
