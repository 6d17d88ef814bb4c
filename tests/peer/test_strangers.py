"""Strangers and liars: none crashes a member, none changes its parameters, all are counted."""

import contextlib
import datetime
import hashlib
import socket
import ssl
import struct
import threading
import time
import warnings

import grpc
import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from firma.encoding import size as encoded_size
from firma.models import SplitModel, mlp
from firma.peer.course import course
from firma.peer.desk import Desk
from firma.peer.hello import RUNNING, Hello
from firma.peer.identity import Identity, load_identity, make_identity
from firma.peer.links import open_line
from firma.peer.log import Log
from firma.peer.node import Node
from firma.peer.reception import DONE, REFUSED, STALE, Reception, serve
from firma.peer.report import Setup
from firma.peer.signature import signature
from firma.peer.signs import Patience, Signs
from firma.peer.terms import Terms, federation_tag
from firma.peer.tls import LARGEST
from firma.peer.wire import chunks, encode
from firma.protocol import ExtractorState, Message
from firma.schedule import plan

from .test_node import assert_same, simulated

VIEW = 3


class Victim:
    """Member 0 of three, in round 1, waiting for its neighbours."""

    def __init__(self, made, tmp_path):
        self.made, ring = made, made.ring
        sizes = (ring.hyper.hidden, ring.hyper.embedding)
        layout = SplitModel(*mlp((8, 8), 10, *sizes)).layout()
        self.terms = Terms(federation_tag(ring.federation), ring.digest, signature(layout), 10)
        self.size = self.terms.signature.size
        self.log = Log(tmp_path / "log.jsonl")

        def today(number):
            return plan(ring.row, ring.hyper, 3, ring.rounds, number)

        self.desk = Desk(Signs(0, ring.names, Patience(5.0, 5.0)), self.log)
        self.desk.begin(VIEW, course(VIEW, 0, (0, 1, 2), ring.rounds, self.size, today), 0)

        def hello():
            return Hello(
                self.terms.federation, self.terms.ring, self.terms.signature.digest, 8, (VIEW, 1, 0), 0.0, RUNNING
            )

        self.reception = Reception(ring, self.terms, self.log, hello, self.desk)
        self.server = serve(self.reception, load_identity(made.identity(0)), ring.members[0].address)

    def line(self, identity):
        return open_line(identity, self.made.ring, 0)

    def say(self, sender, *parts):
        line = self.line(load_identity(self.made.identity(sender)))
        try:
            return line.send(iter(parts), timeout=10)
        finally:
            line.channel.close()

    def message(self, tag=(VIEW, 1, 0), value=1.0, count=None, start=0):
        state = ExtractorState(torch.full((self.size if count is None else count,), value), start)
        head, values = encode(self.terms, tag, Message(state))
        return [head, *chunks(values)]

    @property
    def untouched(self):
        return not self.desk.inbox._held


@pytest.fixture
def victim(make_ring, tmp_path):
    made = make_ring("fibfl", 3, 5, "iid")
    each = Victim(made, tmp_path)
    yield each
    each.server.stop(0).wait()
    each.log.close()


def tls(victim, most=ssl.TLSVersion.TLSv1_3, identity=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context.maximum_version = most
    if identity is not None:
        context.load_cert_chain(identity / "certificate.pem", identity / "key.pem")
    host, port = victim.made.ring.members[0].address.split(":")
    with socket.create_connection((host, int(port)), timeout=5) as raw, context.wrap_socket(raw) as wrapped:
        wrapped.settimeout(5)
        wrapped.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        if not wrapped.recv(1):
            raise ConnectionError("closed")
        return wrapped.version()


def test_only_tls_13_with_a_members_certificate_gets_in(victim, tmp_path):
    make_identity(tmp_path / "stranger", "bee")
    assert tls(victim, identity=victim.made.identity(1)) == "TLSv1.3"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        tls(victim)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        tls(victim, identity=tmp_path / "stranger")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        tls(victim, ssl.TLSVersion.TLSv1_2, victim.made.identity(1))
    with (
        pytest.raises((ssl.SSLError, ConnectionError, OSError)),
        socket.create_connection(tuple(victim.made.ring.members[0].address.split(":")), timeout=5) as plain,
    ):
        plain.settimeout(3)
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while plain.recv(100):
            pass
        raise ConnectionError("closed")
    assert victim.untouched
    assert victim.reception.turned_away >= 3


def test_a_stranger_with_a_members_name_is_refused(victim, tmp_path):
    line = victim.line(make_identity(tmp_path / "false-bee", "bee"))
    with pytest.raises(grpc.RpcError) as refusal:
        line.send(iter(victim.message()), timeout=5)
    line.channel.close()
    assert refusal.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    assert victim.untouched


def test_a_channel_trusts_its_neighbours_certificate_only(victim):
    """Cat's channel to bee, led to ant's address, ends in the handshake: ant is not bee."""
    ring = victim.made.ring
    moved = ring.members[1].model_copy(update={"address": ring.members[0].address})
    turned = ring.model_copy(update={"members": (ring.members[0], moved, ring.members[2])})
    line = open_line(load_identity(victim.made.identity(2)), turned, 1)
    with pytest.raises(grpc.RpcError) as refusal:
        line.hello(b"", timeout=5)
    line.channel.close()
    assert refusal.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def test_what_a_member_says_counts_for_itself_alone(victim):
    assert victim.say(1, *victim.message())[0] == DONE
    assert {sender for sender, _ in victim.desk.inbox._held} == {1}


def resealed(head, old, new):
    body = head[:-32].replace(old, new)
    return body + hashlib.sha256(body).digest()


def test_lies_of_every_kind_are_refused_and_counted(victim):
    head, *rest = victim.message()
    whole = b"".join(rest)
    first = victim.terms.signature.cuts(0, victim.size)[0]
    digest = hashlib.sha256(whole[: 4 * first.count]).digest()
    nan = b"\0\0\xc0\x7f" + whole[4:]
    nan_digest = hashlib.sha256(nan[: 4 * first.count]).digest()
    lies = {
        "truncated": [head, whole[:-4]],
        "oversized": [head, whole, b"more"],
        "mis-hashed": [head, b"\1" + whole[1:]],
        "not a number": [resealed(head, digest, nan_digest), nan],
        "wrong shape": [resealed(head, b"extractor.1.weight", b"extractor.9.weight"), whole],
        "no head": [b"x" * 500],
        "nothing": [],
        "part of it": victim.message(count=victim.size - 1),
        "far future": victim.message(tag=(VIEW, 4, 0)),
        "no such round": victim.message(tag=(VIEW, 99, 0)),
        "of an older view": victim.message(tag=(VIEW - 1, 1, 0)),
    }
    for name, parts in lies.items():
        answer = victim.say(1, *parts)
        assert answer[0] in (REFUSED, STALE), name
        assert victim.untouched, name
    assert sum(victim.log.total().values()) == len(lies)
    with contextlib.suppress(grpc.RpcError):
        victim.say(1, b"x" * (LARGEST + 1))
    assert victim.untouched
    assert victim.say(1, head, whole)[0] == DONE, "the member still listens"


def test_a_replay_changes_nothing(victim):
    assert victim.say(1, *victim.message())[0] == DONE
    assert victim.say(1, *victim.message())[0] == DONE
    assert victim.say(1, *victim.message(value=2.0))[0] == REFUSED
    assert victim.desk.inbox._held[1, (VIEW, 1, 0)][1].state.values[0] == 1.0
    assert victim.log.total() == {"repeated": 1, "misfit": 1}
    assert victim.say(2, *victim.message())[0] == DONE
    victim.desk.wait((1, 2), (VIEW, 1, 0), lambda: None)
    victim.desk.enter((VIEW, 2, 0))
    assert victim.say(1, *victim.message(value=3.0))[0] in (STALE, REFUSED)
    assert victim.untouched


def test_a_flood_from_one_member_leaves_room_for_the_other(victim):
    line = victim.line(load_identity(victim.made.identity(1)))
    hold = threading.Event()

    def slow():
        yield victim.message()[0]
        hold.wait(20)

    flood = [line.send.future(slow()) for _ in range(6)]
    time.sleep(0.5)
    assert victim.say(2, *victim.message())[0] == DONE
    hold.set()
    for each in flood:
        with contextlib.suppress(grpc.RpcError):
            each.result(timeout=10)
    line.channel.close()
    assert victim.log.total()["message"] >= 4


def test_a_ring_under_attack_ends_with_the_same_parameters(make_ring, tmp_path):
    made = make_ring("fibfl+", 3, 3, "dir-0.5")
    nodes = [
        Node(Setup(made.ring, load_identity(made.identity(n)), made.data(n), made.state(n)), lambda report: None)
        for n in range(3)
    ]
    over, outcomes = threading.Event(), {}

    def attack():
        liar = open_line(load_identity(made.identity(1)), made.ring, 0)
        stranger = open_line(make_identity(tmp_path / "stranger", "bee"), made.ring, 0)
        terms = nodes[1].terms
        state = ExtractorState(torch.full((terms.signature.size,), 1e9))
        while not over.wait(0.02):
            for turn in (1, 2, 3):
                head, values = encode(terms, (1, turn, 0), Message(state, accuracy=1.0))
                for line in (liar, stranger):
                    with contextlib.suppress(grpc.RpcError):
                        line.send(iter([head, *chunks(values)][:1]), timeout=0.5)  # never the whole of it
            lies = [[b"junk" * 100], [head, b"\1" * len(values.tobytes())], [head, values.tobytes()[:-1]]]
            for lie in lies:
                with contextlib.suppress(grpc.RpcError):
                    liar.send(iter(lie), timeout=0.5)
            for line in (liar, stranger):
                with contextlib.suppress(grpc.RpcError):
                    line.note(b"junk" * 100, timeout=0.5)
        liar.channel.close()
        stranger.channel.close()

    def work(number):
        outcomes[number] = nodes[number].run()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    attacker = threading.Thread(target=attack)
    for thread in (attacker, *threads):
        thread.start()
    for thread in threads:
        thread.join(90)
    over.set()
    attacker.join(20)
    assert_same(made, outcomes, simulated(made, "dir-0.5", audit=True))
    assert outcomes[0].refused["message"] > 0
    assert outcomes[0].refused["note"] > 0


def forged(victim, wire, bad):
    """A whole message in an encoding, whose first bytes are others: its hashes and its seal are right."""
    state = ExtractorState(torch.ones(victim.size))
    head, body = encode(victim.terms, (VIEW, 1, 0), Message(state, wire=wire))
    length = encoded_size(wire, victim.terms.signature.cuts(0, victim.size)[0].count)
    whole, changed = body.tobytes(), bad + body.tobytes()[len(bad) :]
    before, after = (hashlib.sha256(raw[:length]).digest() for raw in (whole, changed))
    return [resealed(head, before, after), changed]


@pytest.mark.parametrize(
    ("wire", "bad"),
    [
        ("bfloat16", struct.pack("<H", 0x7FC0)),
        ("bfloat16", struct.pack("<H", 0x7F80)),
        ("int8", struct.pack("<f", float("nan"))),
        ("int8", struct.pack("<f", float("inf"))),
        ("int8", struct.pack("<f", 3.4e38)),
        ("int8", struct.pack("<f", -1.0)),
    ],
)
def test_narrow_lies_are_refused_and_the_truth_is_taken(victim, wire, bad):
    assert victim.say(1, *forged(victim, wire, bad))[0] == REFUSED
    assert victim.untouched
    assert victim.log.total() == {"message": 1}
    assert victim.say(1, *forged(victim, wire, b""))[0] == DONE
    assert victim.desk.inbox._held[1, (VIEW, 1, 0)][1].wire == wire


def test_the_wrong_number_of_bytes_for_the_encoding(victim):
    """Bodies and heads of different encodings do not go together, whichever is the longer."""
    for wire, other in (("int8", "float32"), ("float32", "int8"), ("bfloat16", "int8")):
        state = ExtractorState(torch.ones(victim.size))
        head = encode(victim.terms, (VIEW, 1, 0), Message(state, wire=wire))[0]
        body = encode(victim.terms, (VIEW, 1, 0), Message(state, wire=other))[1]
        assert victim.say(1, head, body.tobytes())[0] == REFUSED
        assert victim.untouched
    assert victim.log.total() == {"message": 3}


def certificate_for(name, issuer, key):
    """A certificate for `name`, made with a key that belongs to somebody else in the ring, as PEM."""
    subject, signer = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in (name, issuer))
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(signer).public_key(key.public_key())
        .serial_number(7).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    return made.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    ("issuer", "answer"), [("cat", grpc.StatusCode.UNAVAILABLE), ("bee", grpc.StatusCode.PERMISSION_DENIED)]
)
def test_a_members_key_under_anothers_name_is_a_stranger(victim, issuer, answer):
    """Bee certifies itself as cat, which ends in the handshake, or vouches for a cat with its own certificate.

    The second gets through TLS, for which a pinned certificate may vouch for others; the second lock knows better.
    """
    own = load_identity(victim.made.identity(1))
    key = serialization.load_pem_private_key(own.key, None)
    line = victim.line(Identity(own.key, certificate_for("cat", issuer, key)))
    for call, word in ((line.send, iter(victim.message())), (line.hello, victim.reception.hello().encode())):
        with pytest.raises(grpc.RpcError) as refusal:
            call(word, timeout=5)
        assert refusal.value.code() in (answer, grpc.StatusCode.DEADLINE_EXCEEDED)
    line.channel.close()
    assert victim.untouched
    assert not victim.desk.seen, "not even a sign of life"
    assert victim.log.total() == ({"stranger": 2} if issuer == "bee" else {})
    assert victim.reception.turned_away >= 1


def test_who_repeats_anothers_words_says_them_for_itself(victim):
    """A message has no sender's name in it: what cat recorded of bee and sends again is cat's own word."""
    recorded = victim.message(value=3.0)
    assert victim.say(2, *recorded)[0] == DONE
    assert set(victim.desk.inbox._held) == {(2, (VIEW, 1, 0))}
    assert victim.say(2, *recorded)[0] == DONE
    assert victim.log.total() == {"repeated": 1}


def test_a_flood_of_junk_is_counted_and_not_written_out(victim, tmp_path):
    line = victim.line(load_identity(victim.made.identity(1)))
    for _ in range(150):
        assert line.send(iter([b"junk" * 50]), timeout=10)[0] == REFUSED
        line.hello(b"junk", timeout=10)
    line.channel.close()
    assert victim.log.total() == {"message": 150, "hello": 150}
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 40
    assert victim.say(2, *victim.message())[0] == DONE


def test_silent_connections_of_strangers_take_no_ones_place(victim):
    host, port = victim.made.ring.members[0].address.split(":")
    idle = [socket.create_connection((host, int(port)), timeout=5) for _ in range(60)]
    try:
        assert victim.say(1, *victim.message())[0] == DONE
    finally:
        for each in idle:
            each.close()


def test_a_message_that_stops_half_way_is_ended_and_logged(victim, tmp_path):
    hold = threading.Event()
    head, *rest = victim.message()

    def half():
        yield head
        yield rest[0][:100]
        hold.wait(20)

    line = victim.line(load_identity(victim.made.identity(1)))
    call = line.send.future(half())
    end = time.monotonic() + 10
    while not call.done():
        assert time.monotonic() < end
        time.sleep(0.05)
        victim.reception.sweep(0.2)
    hold.set()
    with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)):
        call.result()
    line.channel.close()
    assert victim.untouched
    assert '"stalled"' in (tmp_path / "log.jsonl").read_text()
