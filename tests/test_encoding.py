"""How parameters are written: exact sizes, rounding that an independent hand gives, and nothing that is not finite."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import firma
from firma.encoding import BLOCK, WIRES, checked_wire, pack, size, unpack
from firma.engines.message_passing import transmitted
from firma.errors import BadInput
from firma.models import SplitModel, mlp
from firma.protocol import ExtractorState, Message

ORDINARY = st.floats(-(2.0**100), 2.0**100, width=32)


def vectors(most=40):
    return st.lists(ORDINARY, min_size=1, max_size=most).map(lambda v: np.array(v, np.float32))


@settings(deadline=None)
@given(vectors())
def test_float32_comes_back_as_it_was(values):
    assert np.array_equal(unpack("float32", pack("float32", values), len(values)), values)


@settings(deadline=None)
@given(vectors())
def test_bfloat16_rounds_as_torch_does(values):
    raw = pack("bfloat16", values)
    assert len(raw) == size("bfloat16", len(values)) == 2 * len(values)
    expected = torch.from_numpy(values).to(torch.bfloat16)
    assert raw.tobytes() == expected.view(torch.int16).numpy().astype("<i2").tobytes()
    assert np.array_equal(unpack("bfloat16", raw, len(values)), expected.float().numpy())


@settings(deadline=None)
@given(vectors())
def test_int8_is_the_nearest_of_255_levels(values):
    """Element by element in Python's own float64: no farther off than half a level, and a hair for float32."""
    raw = pack("int8", values)
    assert len(raw) == size("int8", len(values)) == len(values) + 4
    back = unpack("int8", raw, len(values))
    level = max(abs(float(v)) for v in values) / 127
    for before, after in zip(values, back, strict=True):
        assert abs(float(before) - float(after)) <= level * (0.5 + 1e-5) + 2.0**-112


def test_int8_by_hand():
    values = np.array([127.0, -127.0, 0.5, 1.5, -2.5, 2.4, 0.0], np.float32)
    raw = pack("int8", values)
    assert raw[:4].tobytes() == np.float32(1.0).tobytes()
    assert raw[4:].view(np.int8).tolist() == [127, -127, 0, 2, -2, 2, 0], "ties to even"
    assert unpack("int8", raw, 7).tolist() == [127.0, -127.0, 0.0, 2.0, -2.0, 2.0, 0.0]


def test_every_block_has_its_own_scale():
    values = np.concatenate([np.full(BLOCK, 1000.0), np.full(3, 0.001)]).astype(np.float32)
    raw = pack("int8", values)
    assert len(raw) == size("int8", BLOCK + 3) == BLOCK + 3 + 8
    np.testing.assert_allclose(unpack("int8", raw, len(values)), values, rtol=1e-6)


@pytest.mark.parametrize("wire", WIRES)
def test_nothing_zero_and_tiny_numbers(wire):
    for values in (np.zeros(5, np.float32), np.full(3, 1e-42, np.float32), np.empty(0, np.float32)):
        back = unpack(wire, pack(wire, values), len(values))
        np.testing.assert_allclose(back, values, atol=1e-41)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_not_written(wire, bad):
    with pytest.raises(ValueError, match="NaN or infinity"):
        pack(wire, np.array([1.0, bad], np.float32))


@pytest.mark.parametrize("wire", ["bfloat16", "int8"])
def test_what_would_round_to_infinity_is_not_written(wire):
    with pytest.raises(ValueError, match="too large"):
        pack(wire, np.array([np.finfo(np.float32).max], np.float32))
    assert np.isfinite(unpack(wire, pack(wire, np.array([1e38, -1e38], np.float32)), 2)).all()


def scale_and(level, scale):
    return np.frombuffer(np.float32(scale).tobytes() + np.int8(level).tobytes(), np.uint8)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (scale_and(1, math.nan), "scale"),
        (scale_and(1, math.inf), "scale"),
        (scale_and(1, -1.0), "scale"),
        (scale_and(-128, 1.0), "level"),
        (scale_and(127, 3e38), "NaN or infinity"),
        (scale_and(1, 1.0)[:-1], "bytes instead of 5"),
    ],
)
def test_int8_that_is_no_int8_is_not_read(raw, says):
    with pytest.raises(ValueError, match=says):
        unpack("int8", raw, 1)


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC0])
def test_bfloat16_that_is_not_finite_is_not_read(bits):
    with pytest.raises(ValueError, match="NaN or infinity"):
        unpack("bfloat16", np.array([bits], "<u2").view(np.uint8), 1)


def test_a_name_that_is_none():
    assert checked_wire("int8") == "int8"
    with pytest.raises(BadInput, match="float32, bfloat16, int8"):
        checked_wire("int4")


@pytest.mark.parametrize("wire", WIRES)
def test_the_simulations_way_is_the_wires(wire):
    """What `transmitted` gives is what a peer decodes from the bytes, for whole extractors and for pieces of them."""
    from firma.peer.wire.message import Assembly, chunks, decode_header, encode
    from firma.peer.wire.terms import Terms, federation_tag, signature

    layout = SplitModel(*mlp((60,), 10, 40, 30)).layout()
    terms = Terms(federation_tag("t"), b"r" * 32, signature(layout), 10)
    for start, stop in ((0, layout.extractor), (7, 3000), (2390, 2405)):
        values = torch.randn(stop - start, generator=torch.Generator().manual_seed(start))
        message = Message(ExtractorState(values, start), wire=wire)
        header, body = encode(terms, (1, 1, 0), message)
        assembly = Assembly(decode_header(terms, header))
        for chunk in chunks(body):
            assembly.feed(chunk)
        arrived, simulated = assembly.finish(), transmitted(message, layout)
        assert torch.equal(arrived.state.values, simulated.state.values)
        assert arrived.wire == simulated.wire == wire
        assert len(body) == sum(size(wire, count) for count in layout.counts(start, stop))


def test_a_run_counts_its_bytes_and_still_learns():
    settings_ = {"extractor_epochs": 3}
    runs = {
        wire: firma.run("digits", "skew-1", "fibfl++", rounds=6, clients=4, settings=settings_, wire=wire, audit=True)
        for wire in WIRES
    }
    sent = {wire: sum(result.sent_bytes) for wire, result in runs.items()}
    assert 0.49 < sent["bfloat16"] / sent["float32"] < 0.51
    assert 0.25 < sent["int8"] / sent["float32"] < 0.27
    assert runs["int8"].config["wire"] == "int8"
    for result in runs.values():
        assert result.audit["head_private"]
        assert result.metrics["mean_accuracy"] > runs["float32"].metrics["mean_accuracy"] - 0.05
    unaudited = firma.run("digits", "skew-1", "fibfl++", rounds=6, clients=4, settings=settings_, wire="int8")
    assert torch.equal(unaudited.parameters, runs["int8"].parameters)
    assert unaudited.sent_bytes == runs["int8"].sent_bytes


@pytest.mark.parametrize("method", firma.METHODS)
def test_every_method_can_be_narrow(method):
    """Whatever is shared, with a server or without one; what is not shared is not rounded."""
    settings_ = {"rate": 0.01, "extractor_epochs": 1, "epochs": 1, "hidden": 32, "embedding": 16}
    full, narrow = (
        firma.run("digits", "iid", method, clients=3, rounds=2, settings=settings_, wire=wire, audit=True)
        for wire in ("float32", "int8")
    )
    if method == "local":
        assert narrow.sent_bytes == full.sent_bytes == (0, 0)
        assert torch.equal(narrow.parameters, full.parameters)
        return
    assert 0.25 < sum(narrow.sent_bytes) / sum(full.sent_bytes) < 0.28
    assert narrow.audit["messages"] == full.audit["messages"]
    assert not torch.equal(narrow.parameters, full.parameters)
    assert abs(narrow.metrics["mean_accuracy"] - full.metrics["mean_accuracy"]) < 0.1


def test_parameters_that_left_the_numbers_are_said_to_have():
    layout = SplitModel(*mlp((3,), 2, 4, 3)).layout()
    with pytest.raises(BadInput, match="lower learning rate"):
        transmitted(Message(ExtractorState(torch.full((5,), math.nan)), wire="int8"), layout)
