"""Signatures of a ring's members, with the keys of their certificates: P-256 ECDSA over SHA-256, 64 bytes each."""

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from firma.peer.identity import Identity, read_certificate
from firma.peer.membership.views import SEAL, Seals
from firma.peer.ring_file import Ring

_HALF = SEAL // 2
_ALGORITHM = ec.ECDSA(hashes.SHA256())


def sign(key: ec.EllipticCurvePrivateKey, said: bytes) -> bytes:
    """(64,) r and s."""
    r, s = decode_dss_signature(key.sign(said, _ALGORITHM))
    return r.to_bytes(_HALF, "big") + s.to_bytes(_HALF, "big")


def verify(key: ec.EllipticCurvePublicKey, said: bytes, signature: bytes) -> bool:
    """Whether the owner of a key has signed this."""
    if len(signature) != SEAL:
        return False
    r, s = int.from_bytes(signature[:_HALF], "big"), int.from_bytes(signature[_HALF:], "big")
    try:
        key.verify(encode_dss_signature(r, s), said, _ALGORITHM)
    except InvalidSignature:
        return False
    return True


def seals(ring: bytes, own: ec.EllipticCurvePrivateKey, members: tuple[ec.EllipticCurvePublicKey, ...]) -> Seals:
    """Signatures with these keys, under a ring file; one that was found genuine or not is not computed again."""

    @lru_cache(maxsize=8192)
    def verified(member: int, said: bytes, signature: bytes) -> bool:
        return 0 <= member < len(members) and verify(members[member], said, signature)

    return Seals(ring, lambda said: sign(own, said), verified)


def seals_of(ring: Ring, identity: Identity) -> Seals:
    """Signatures of a site, and of the others by the certificates that are pinned in the ring file."""
    own = serialization.load_pem_private_key(identity.key, None)
    assert isinstance(own, ec.EllipticCurvePrivateKey)  # load_identity has compared it with its certificate
    keys = []
    for member in ring.members:
        public = read_certificate(member.certificate.encode()).public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey)  # read_certificate takes no other
        keys.append(public)
    return seals(ring.digest, own, tuple(keys))
