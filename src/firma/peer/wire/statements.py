"""Statements: what a member has signed with its certificate's key, whoever hands it on. Pure.

There are two kinds. `accept`: this member has read the ring file and consents to it. `stop`: this member asks that the
ring ends before its last round. A statement names a ring file by its digest, so it says nothing about any other. It is
never taken back: members only ever learn of more statements, in any order and from anybody. Results of members that
share them (`wire.results`) travel with the statements, where the ring file agrees on a summary.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from firma.peer.identity import Identity, read_certificate
from firma.peer.ring_file import Ring
from firma.peer.wire.results import SignedResult, plain_results, read_results
from firma.peer.wire.terms import MAGIC, VERSION, WireError, check_version

Kind = Literal["accept", "stop"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Statement = tuple[Kind, int]  # by which member
_DOMAIN = b"FIRMA statement 1"  # so that no other signature of the same key can be taken for one
_HEADER = struct.Struct("<4sH32s")
_LONGEST = 80  # bytes of a signature: P-256 in DER has at most 72
_LARGEST = 1 << 20
_RESULTS = "results"


@dataclass(frozen=True, slots=True)
class Statements:
    """A ring file's digest, signatures by kind and member, and the newest results of members that share them."""

    ring: bytes
    signatures: Mapping[Statement, bytes] = field(default_factory=dict)
    results: tuple[SignedResult, ...] = ()


def _content(kind: Kind, ring: bytes) -> bytes:
    return b"\0".join((_DOMAIN, kind.encode(), ring))


def sign(identity: Identity, kind: Kind, ring: bytes) -> bytes:
    """This site's signature under a statement about the ring file with this digest."""
    key = serialization.load_pem_private_key(identity.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)  # load_identity has compared it with the certificate
    return key.sign(_content(kind, ring), ec.ECDSA(hashes.SHA256()))


def is_signed(ring: Ring, statement: Statement, signature: bytes) -> bool:
    """Whether the member's pinned certificate vouches for the statement."""
    kind, member = statement
    public = read_certificate(ring.members[member].certificate.encode()).public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)  # the certificate was checked with the ring file
    try:
        public.verify(signature, _content(kind, ring.digest), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def encode_statements(statements: Statements) -> bytes:
    """Statements in bytes."""
    plain: dict[str, Any] = {kind: {} for kind in KINDS}
    for (kind, member), signature in sorted(statements.signatures.items()):
        plain[kind][str(member)] = signature.hex()
    if statements.results:
        plain[_RESULTS] = plain_results(statements.results)
    return _HEADER.pack(MAGIC, VERSION, statements.ring) + json.dumps(plain).encode()


def decode_statements(raw: bytes, agreed: Ring) -> Statements:
    """Statements and results of members of a ring, not yet compared with their certificates, or `WireError`.

    Of another ring file than `agreed`, results are left unread: what they may hold is not known here.
    """
    check_version(raw)
    if not _HEADER.size < len(raw) <= _LARGEST:
        raise WireError("statements of the wrong size")
    ring: bytes = _HEADER.unpack_from(raw)[2]
    found: dict[Statement, bytes] = {}
    try:
        plain = json.loads(raw[_HEADER.size :])
        results = plain.pop(_RESULTS, [])
        if set(plain) != set(KINDS):
            raise ValueError("kinds")
        shared = read_results(agreed, results) if results and ring == agreed.digest else ()
        for kind, signatures in plain.items():
            for member, signature in signatures.items():
                number, value = int(member), bytes.fromhex(signature)
                if member != str(number) or not 0 <= number < len(agreed.members) or not 0 < len(value) <= _LONGEST:
                    raise ValueError("signature")
                found[cast(Kind, kind), number] = value
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise WireError(f"statements of the wrong form ({type(error).__name__})") from None
    return Statements(ring, found, shared)
