"""Mutual TLS with pinned certificates, by gRPC: a channel trusts one certificate, a server accepts the members'."""

import sys
from collections.abc import Callable
from typing import Any

import grpc

from firma.errors import BadInput
from firma.peer.identity import Identity, canonical
from firma.peer.ring_file import Ring, Site
from firma.peer.wire.message import CHUNK

LARGEST = 2 * CHUNK  # bytes of one gRPC message; larger ones are refused before they are read
_MOST_CONNECTIONS = 4096  # each takes some 20 to 46 kB while its handshake lasts and ends
_OWN_FILES = 192  # open files of a member besides its connections: data, logs, checkpoints, event loops
_LIMITS = [
    ("grpc.max_receive_message_length", LARGEST),
    ("grpc.max_send_message_length", LARGEST),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
_CLIENT = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]
HANDSHAKE = 10.0  # seconds within which a connection must have shown a member's certificate
_SERVER = [
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE)),
]


def channel(identity: Identity, site: Site) -> Any:
    """A channel that talks to exactly this site."""
    pinned = site.certificate.encode()
    credentials = grpc.ssl_channel_credentials(pinned, identity.key, identity.certificate)
    options = [*_LIMITS, *_CLIENT, ("grpc.ssl_target_name_override", site.name)]
    return grpc.secure_channel(site.address, credentials, options)


def server_credentials(identity: Identity, ring: Ring, on_connection: Callable[[], None]) -> Any:
    """Credentials that let in members only; `on_connection` is called for every handshake that begins."""
    roots = "".join(member.certificate for member in ring.members).encode()
    pair = [(identity.key, identity.certificate)]
    configuration = grpc.ssl_server_certificate_configuration(pair, roots)

    def fetch() -> None:
        """Returns None so that gRPC keeps its current certificates: new ones would free those of handshakes in
        progress, and a few strangers that connect at the same time would end the process (grpc/grpc issue 36693)."""
        on_connection()

    return grpc.dynamic_ssl_server_credentials(configuration, fetch, require_client_authentication=True)


def open_server(pool: Any, handler: Any, credentials: Any, address: str, most: int, members: int) -> Any:
    """A server on an address, or a clear refusal."""
    options = [*_LIMITS, *_SERVER, ("grpc.max_allowed_incoming_connections", connections(open_file_limit(), members))]
    server = grpc.server(pool, [handler], options=options, maximum_concurrent_rpcs=most)
    try:
        port = server.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        raise BadInput(
            f"cannot listen on {address!r}: the port is taken, or the host is not an address of this machine; "
            "--listen takes another HOST:PORT, such as 0.0.0.0:7443"
        )
    server.start()
    return server


def open_file_limit() -> int:
    """How many files and sockets this process may have open, after its soft limit is raised to the hard one.

    The usual soft limit of 1,024 is there for programs that call select(); neither gRPC nor FIRMA does.
    """
    if sys.platform == "win32":
        return _MOST_CONNECTIONS  # there is no such limit
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # macOS names no number and accepts none above its own
            pass
    return _MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else soft


def connections(limit: int, members: int) -> int:
    """How many connections may be open at a time: strangers must not take the files that rounds are saved in."""
    own = _OWN_FILES + 8 * members
    return max(min(limit - own, _MOST_CONNECTIONS), 2 * members)


def caller(context: Any, members: dict[bytes, int]) -> int | None:
    """The member whose certificate this call came with; names in messages are never asked."""
    found = context.auth_context().get("x509_pem_cert", [])
    try:
        return members.get(canonical(found[0])) if found else None
    except BadInput:
        return None
