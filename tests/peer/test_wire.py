"""The wire format: what goes in comes out, what is changed on the way is found, and a head does not fit."""

import hashlib
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firma.encoding import WIRES, size
from firma.engines.message_passing import transmitted
from firma.models import SplitModel, mlp
from firma.peer.wire.message import Assembly, chunks, decode_header, encode
from firma.peer.wire.terms import Terms, WireError, federation_tag, signature
from firma.protocol import ExtractorState, Message, ModelState

LAYOUT = SplitModel(*mlp((3,), 2, 4, 3)).layout()
TERMS = Terms(federation_tag("test"), b"r" * 32, signature(LAYOUT), 3)
SIZE = TERMS.signature.size
FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)


def sent(payload, tag=(1, 2, 1), terms=TERMS):
    header, body = encode(terms, tag, payload)
    return [header, *chunks(body)]


def received(parts, terms=TERMS):
    header = decode_header(terms, parts[0])
    assembly = Assembly(header)
    for part in parts[1:]:
        assembly.feed(part)
    return header.tag, assembly.finish()


def same(one, two):
    return (
        torch.allclose(one.state.values, two.state.values, rtol=1e-6, atol=1e-33)
        and one.wire == two.wire
        and (one.state.start, one.accuracy, one.weight) == (two.state.start, two.accuracy, two.weight)
    )  # fmt: skip


@st.composite
def payloads(draw):
    start = draw(st.integers(0, SIZE - 1))
    count = draw(st.integers(1, SIZE - start))
    values = draw(st.lists(FLOATS, min_size=count, max_size=count))
    accuracy = draw(st.none() | st.floats(0, 1))
    weight = draw(st.none() | st.floats(1e-3, 1e12))
    wire = draw(st.sampled_from(WIRES))
    state = ExtractorState(torch.tensor(values, dtype=torch.float32), start)
    return transmitted(Message(state, accuracy, weight, wire), LAYOUT)  # rounded already: a round trip leaves it


@settings(deadline=None, max_examples=60)
@given(payloads(), st.integers(1, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_round_trip(payload, epoch, step):
    tag, back = received(sent(payload, (epoch, 7, step)))
    assert tag == (epoch, 7, step)
    assert same(back, payload)


@settings(deadline=None, max_examples=200)
@given(payloads(), st.data())
def test_a_change_anywhere_is_found(payload, data):
    parts = sent(payload)
    which = data.draw(st.integers(0, len(parts) - 1))
    raw = bytearray(parts[which])
    place = data.draw(st.integers(0, len(raw) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "add", "insert"])):
        case "flip":
            raw[place] ^= data.draw(st.integers(1, 255))
        case "cut":
            del raw[place:]
        case "add":
            raw += data.draw(st.binary(min_size=1, max_size=40))
        case "insert":
            raw.insert(place, data.draw(st.integers(0, 255)))
    parts[which] = bytes(raw)
    try:
        _, back = received(parts)
    except WireError:
        return
    assert same(back, payload)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=400))
def test_noise_is_refused_even_with_a_right_seal(noise):
    for raw in (noise, noise + hashlib.sha256(noise).digest()):
        with pytest.raises(WireError):
            decode_header(TERMS, raw)


def resealed(raw, place, new):
    body = raw[:place] + new + raw[place + len(new) : -32]
    return body + hashlib.sha256(body).digest()


@settings(deadline=None, max_examples=200)
@given(payloads(), st.data())
def test_a_liar_who_seals_again_says_only_what_the_terms_allow(payload, data):
    """With the seal made right again a changed header is refused or is another message within the terms."""
    parts = sent(payload)
    place = data.draw(st.integers(0, len(parts[0]) - 33))
    raw = resealed(parts[0], place, data.draw(st.binary(min_size=1, max_size=8))[: len(parts[0]) - 32 - place])
    try:
        header = decode_header(TERMS, raw)
    except WireError:
        return
    assert header.start + header.count <= SIZE
    assert sum(cut.count for cut, _ in header.cuts) == header.count
    assert header.accuracy is None or 0 <= header.accuracy <= 1
    assert header.weight is None or 0 < header.weight < float("inf")


def test_a_model_state_is_refused_by_type():
    with pytest.raises(WireError, match="only extractors travel"):
        sent(Message(ModelState(torch.zeros(SIZE))))


def test_a_head_does_not_fit_under_an_extractors_name():
    for start, count in ((0, LAYOUT.size), (1, SIZE), (SIZE, 1), (-1, 2)):
        with pytest.raises(WireError, match="not all of the extractor"):
            sent(Message(ExtractorState(torch.zeros(count), start)))
    assert not any(name.startswith("head") for name, _, _ in TERMS.signature.tensors)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_not_a_number_is_neither_sent_nor_taken(bad):
    values = torch.zeros(SIZE)
    parts = sent(Message(ExtractorState(values)))
    values[3] = bad
    with pytest.raises(WireError, match="NaN"):
        sent(Message(ExtractorState(values)))
    raw = bytearray(parts[1])
    raw[12:16] = struct.pack("<f", bad)
    first = TERMS.signature.cuts(0, SIZE)[0]
    digest = hashlib.sha256(bytes(raw[: 4 * first.count])).digest()
    place = parts[0].index(hashlib.sha256(parts[1][: 4 * first.count]).digest())
    with pytest.raises(WireError, match="NaN"):
        received([resealed(parts[0], place, digest), bytes(raw)])


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        (Terms(federation_tag("other"), TERMS.ring, TERMS.signature, 3), "another federation"),
        (Terms(TERMS.federation, b"q" * 32, TERMS.signature, 3), "ring file differs"),
        (
            Terms(TERMS.federation, TERMS.ring, signature(SplitModel(*mlp((4,), 2, 4, 3)).layout()), 3),
            "the manifest names",
        ),
    ],
)
def test_messages_of_others_are_refused(terms, says):
    with pytest.raises(WireError, match=says):
        received(sent(Message(ExtractorState(torch.zeros(SIZE)))), terms)


def test_another_version_is_named():
    raw = bytearray(sent(Message(ExtractorState(torch.zeros(SIZE))))[0])
    raw[4:6] = struct.pack("<H", 9)
    with pytest.raises(WireError, match="version 9"):
        decode_header(TERMS, bytes(raw))


def test_a_large_message_travels_in_chunks_of_a_mebibyte():
    layout = SplitModel(*mlp((3000,), 2, 128, 3)).layout()
    terms = Terms(TERMS.federation, TERMS.ring, signature(layout), 3)
    message = Message(ExtractorState(torch.randn(terms.signature.size)))
    parts = sent(message, terms=terms)
    assert [len(part) for part in parts[1:-1]] == [1 << 20]
    assert same(received(parts, terms)[1], message)


@pytest.mark.parametrize("wire", WIRES)
def test_a_body_has_exactly_the_bytes_of_its_encoding(wire):
    parts = sent(Message(ExtractorState(torch.randn(SIZE)), wire=wire))
    header = decode_header(TERMS, parts[0])
    assert header.wire == wire
    assert len(parts[1]) == sum(size(wire, cut.count) for cut, _ in header.cuts)
    for cut_off in (parts[1][:-1], parts[1][:-4], b""):
        with pytest.raises(WireError):
            received([parts[0], *([cut_off] if cut_off else [])])
    with pytest.raises(WireError, match="more bytes"):
        received([*parts, b"x"])


def test_a_message_names_one_encoding_that_is_known():
    """The entry of each tensor holds the encoding behind the length of its name."""
    raw = sent(Message(ExtractorState(torch.zeros(SIZE)), wire="int8"))[0]
    names = [name.encode() for name, _, _ in TERMS.signature.tensors]
    place = raw.index(names[0]) - 2
    assert raw[place] == 3
    for kind in (0, 4, 255):
        with pytest.raises(WireError, match="unknown encoding"):
            decode_header(TERMS, resealed(raw, place, bytes([kind])))
    second = raw.index(names[1]) - 2
    with pytest.raises(WireError, match="manifest differs"):
        decode_header(TERMS, resealed(raw, second, bytes([1])))


def forged(wire, change):
    """A whole message whose first tensor's bytes were changed, with its hash and the seal made right again."""
    header, body = sent(Message(ExtractorState(torch.linspace(-1, 1, SIZE)), wire=wire))
    length = size(wire, TERMS.signature.cuts(0, SIZE)[0].count)
    before, raw = body[:length], bytearray(body)
    change(raw)
    place = header.index(hashlib.sha256(before).digest())
    return [resealed(header, place, hashlib.sha256(bytes(raw[:length])).digest()), bytes(raw)]


@pytest.mark.parametrize(
    ("wire", "bad", "says"),
    [
        ("bfloat16", struct.pack("<H", 0x7FC0), "NaN"),
        ("bfloat16", struct.pack("<H", 0xFF80), "NaN"),
        ("int8", struct.pack("<f", float("nan")), "scale"),
        ("int8", struct.pack("<f", float("inf")), "scale"),
        ("int8", struct.pack("<f", -0.5), "scale"),
        ("int8", struct.pack("<f", 3.4e38), "NaN or infinity"),
        ("int8", struct.pack("<fb", 1.0, -128), "level"),
    ],
)
def test_narrow_numbers_that_are_none_are_not_taken(wire, bad, says):
    def change(raw):
        raw[: len(bad)] = bad

    with pytest.raises(WireError, match=says):
        received(forged(wire, change))
    assert received(forged(wire, lambda raw: None))[1].wire == wire


def test_too_large_for_a_narrow_encoding_is_not_sent():
    values = torch.zeros(SIZE)
    values[0] = 3.4e38
    assert received(sent(Message(ExtractorState(values))))[1].state.values[0] == values[0]
    with pytest.raises(WireError, match="too large for int8: nothing is sent"):
        sent(Message(ExtractorState(values), wire="int8"))
