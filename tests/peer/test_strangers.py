"""Strangers: who has no member's key is not let in, and none of them changes what a ring computes."""

import contextlib
import datetime
import resource
import select
import signal
import socket
import ssl
import threading
import time
import warnings

import grpc
import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from firma.peer.identity import Identity, load_identity, make_identity
from firma.peer.runtime.node import Node, Setup
from firma.peer.transport.client import connect
from firma.peer.wire.message import DONE, chunks, encode
from firma.peer.wire.message_signature import signer, with_signature
from firma.protocol import ExtractorState, Message

from .crew import Crew
from .test_node import assert_same, simulated


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
    assert victim.server.handshakes_failed >= 3


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
    line = connect(load_identity(victim.made.identity(2)), turned, 1)
    with pytest.raises(grpc.RpcError) as refusal:
        line.heartbeat(b"", timeout=5)
    line.channel.close()
    assert refusal.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


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
    for call, word in (
        (line.send, iter(victim.message())),
        (line.heartbeat, victim.driver.heartbeat(1, None).encode()),
    ):
        with pytest.raises(grpc.RpcError) as refusal:
            call(word, timeout=5)
        assert refusal.value.code() in (answer, grpc.StatusCode.DEADLINE_EXCEEDED)
    line.channel.close()
    assert victim.untouched
    assert victim.member.last_heard == victim.heard_before, "not even a sign of life"
    assert victim.log.total() == ({"stranger": 2} if issuer == "bee" else {})
    assert victim.server.handshakes_failed >= 1


def test_silent_connections_of_strangers_take_no_ones_place(victim):
    host, port = victim.made.ring.members[0].address.split(":")
    idle = [socket.create_connection((host, int(port)), timeout=5) for _ in range(60)]
    try:
        assert victim.say(1, *victim.message())[0] == DONE
    finally:
        for each in idle:
            each.close()


def test_strangers_who_knock_all_at_once_do_not_end_the_process(make_ring, request):
    """Handshakes begin, break off and fail by the thousand, many at any moment: the member is there afterwards."""
    crew = Crew(make_ring("fibfl", 3, 5, "iid"))
    request.addfinalizer(crew.end)
    member = crew.start(0)
    crew.wait(lambda: crew.events(0, "started"), "the member has started")
    host, port = crew.made.ring.members[0].address.split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    end = time.monotonic() + 4

    def storm():
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=2) as raw:
                raw.sendall(b"junk")
            with (
                contextlib.suppress(OSError),
                socket.create_connection((host, int(port)), timeout=2) as raw,
                context.wrap_socket(raw) as wrapped,
            ):
                wrapped.recv(1)

    threads = [threading.Thread(target=storm) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert member.is_alive(), f"it ended with {member.exitcode}"
    crew.signal(0, signal.SIGTERM)
    assert crew.finish() == [130]
    assert crew.events(0, "stopped")[0]["handshakes_failed"] > 100


@pytest.mark.parametrize("hard", [None, 1024], ids=["soft limit 1024", "hard limit 1024"])
def test_idle_connections_of_strangers_do_not_end_a_member(make_ring, request, hard):
    """1,100 connections that say nothing, against a limit of 1,024 open files, before the other members arrive.

    Where the hard limit is above it, the member raises its own, and the strangers may open each connection again as
    soon as it is cut. Where it is not, the connections are cut before rounds could no longer be saved, and the members
    get through when the strangers' time is up.
    """
    crew = Crew(make_ring("fibfl", 3, 5, "iid"), pace=0.1)
    request.addfinalizer(crew.end)
    crew.start(0, ("open files", 1024, hard or resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    crew.wait(lambda: crew.events(0, "started"), "the member has started")
    with idle_connections(crew.made.ring.members[0].address, 1100, again=hard is None):
        for number in (1, 2):
            crew.start(number)
        codes = crew.finish(timeout=60)
    assert codes == [0, 0, 0], [crew.out(number)[-800:] for number in range(3)]
    assert [number for _, number in crew.rounds(0)] == [1, 2, 3, 4, 5]


@contextlib.contextmanager
def idle_connections(address, count, again):
    """So many connections that say nothing; `again`: each is opened again as soon as the other side closes it."""
    host, port = address.split(":")
    ready, over, held = threading.Event(), threading.Event(), {}
    watch = select.epoll()

    def more():
        each = socket.socket()
        each.setblocking(False)
        each.connect_ex((host, int(port)))
        held[each.fileno()] = each
        watch.register(each, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP)

    def keep():
        for _ in range(count):
            more()
        ready.set()
        while not over.is_set():
            for handle, _ in watch.poll(0.1):
                held.pop(handle).close()
                if again:
                    more()

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        assert ready.wait(30)
        yield
    finally:
        over.set()
        thread.join()
        for each in held.values():
            each.close()
        watch.close()


def test_a_ring_under_attack_ends_with_the_same_parameters(make_ring, tmp_path):
    made = make_ring("fibfl+", 3, 3, "dir-0.5")
    nodes = [
        Node(Setup(made.ring, load_identity(made.identity(n)), made.data(n), made.state(n)), lambda report: None)
        for n in range(3)
    ]
    over, outcomes = threading.Event(), {}

    def attack():
        liar = connect(load_identity(made.identity(1)), made.ring, 0)
        stranger = connect(make_identity(tmp_path / "stranger", "bee"), made.ring, 0)
        terms = nodes[1].terms
        sign = signer(load_identity(made.identity(1)), terms.ring)
        state = ExtractorState(torch.full((terms.signature.size,), 1e9))
        while not over.wait(0.02):
            for turn in (1, 2, 3):
                header, values = encode(terms, (1, turn, 0), Message(state, accuracy=1.0))
                header = with_signature(sign, (1, turn, 0), header)
                for line in (liar, stranger):
                    with contextlib.suppress(grpc.RpcError):
                        line.send(iter([header, *chunks(values)][:1]), timeout=0.5)  # never the whole of it
            lies = [[b"junk" * 100], [header, b"\1" * len(values.tobytes())], [header, values.tobytes()[:-1]]]
            for lie in lies:
                with contextlib.suppress(grpc.RpcError):
                    liar.send(iter(lie), timeout=0.5)
            for line in (liar, stranger):
                with contextlib.suppress(grpc.RpcError):
                    line.control(b"junk" * 100, timeout=0.5)
        liar.channel.close()
        stranger.channel.close()

    def work(number):
        outcomes[number] = nodes[number].run()

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(3)]
    attacker = threading.Thread(target=attack, daemon=True)
    for thread in (attacker, *threads):
        thread.start()
    for thread in threads:
        thread.join(90)
    over.set()
    attacker.join(20)
    assert_same(made, outcomes, simulated(made, "dir-0.5", audit=True))
    assert outcomes[0].refused["message"] > 0
    assert outcomes[0].refused["note"] > 0
