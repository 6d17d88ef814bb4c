"""The signature under a message: with it, whoever received a message can prove to others who sent it.

A sender signs (domain, ring digest, tag, digest of the header) with the P-256 key of its certificate; the header holds
the hash of every byte of the body, and the accuracy, the weight or the digests that are sent with it. Its 64 bytes
travel behind the header, in the same part of the stream. TLS alone proves nothing to a third party.
"""

import struct
from collections.abc import Callable

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from firma.peer.identity import Identity, read_certificate
from firma.peer.membership.views import SEAL
from firma.peer.signing import sign, verify
from firma.peer.wire.terms import Tag, WireError

SIZE = SEAL  # bytes of a signature
_DOMAIN = b"FIRMA message v1\0"  # what is signed for another purpose begins otherwise
_TAG, _SEAL = struct.Struct("<III"), 32
Sign = Callable[[Tag, bytes], bytes]  # (64,) signature under a message, given its tag and the digest of its header


def signer(identity: Identity, ring: bytes) -> Sign:
    """Signs messages of a ring with a site's key."""
    key = serialization.load_pem_private_key(identity.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)  # as every identity's is
    return lambda tag, digest: sign(key, _signed(ring, tag, digest))


def public_key(certificate: str) -> ec.EllipticCurvePublicKey:
    """The key under which a member's signatures are verified; a PEM certificate."""
    found = read_certificate(certificate.encode()).public_key()
    assert isinstance(found, ec.EllipticCurvePublicKey)  # read_certificate takes no other
    return found


def genuine(key: ec.EllipticCurvePublicKey, ring: bytes, tag: Tag, digest: bytes, signature: bytes) -> bool:
    """Whether the owner of the key signed this message of this ring."""
    return verify(key, _signed(ring, tag, digest), signature)


def with_signature(sign: Sign, tag: Tag, header: bytes) -> bytes:
    """A header and the signature under it, as they travel."""
    return header + sign(tag, header[-_SEAL:])


def split(raw: bytes) -> tuple[bytes, bytes]:
    """Header and signature, or `WireError`."""
    if len(raw) <= SIZE + _SEAL:
        raise WireError("the header is cut off or changed")
    return raw[:-SIZE], raw[-SIZE:]


def _signed(ring: bytes, tag: Tag, digest: bytes) -> bytes:
    return _DOMAIN + ring + _TAG.pack(*tag) + digest
