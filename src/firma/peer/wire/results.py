"""A site's result as it tells it to all members of the ring: signed, small, checked before it is believed. Pure.

A result holds the task's main metric on the site's own test data after a round, how many test samples there are, and,
where the site shares that too, how many of them are of each class. There is no place for anything else. It is signed
with the key of the site's certificate over (domain, ring file, content), so that whoever passes it on cannot change it.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from firma.peer.identity import Identity
from firma.peer.membership.views import SEAL
from firma.peer.ring_file import Ring
from firma.peer.signing import sign, verify
from firma.peer.wire.message_signature import public_key

_DOMAIN = b"FIRMA result 1\0"
_MOST = 1_000_000_000  # test samples
_LOWEST = -1e9  # R² has no lower bound; what is below is told as this
_DIGITS = 6  # of the metric after the point: what people read, and no more


@dataclass(frozen=True, slots=True)
class Result:
    """What one member says about its model after one round."""

    member: int
    view: int  # number of the view in which the round was done: a round that is done again has a higher one
    round: int  # from 1
    value: float | None  # the task's main metric on the member's own test data; None if it is not finite
    samples: int  # in its test data
    support: tuple[int, ...] = ()  # of them per class (or with each label); empty: not shared

    @property
    def place(self) -> tuple[int, int]:
        """The newest result of a member is the one with the highest place."""
        return self.view, self.round


@dataclass(frozen=True, slots=True)
class SignedResult:
    """A result and its member's signature."""

    result: Result
    signature: bytes  # (64,)


def told_value(value: float) -> float | None:
    """A metric as it is told: rounded, None if it is not finite."""
    return max(round(float(value), _DIGITS), _LOWEST) if math.isfinite(value) else None


def sign_result(identity: Identity, ring: bytes, result: Result) -> SignedResult:
    """A result signed with this site's key, for the ring file with this digest."""
    key = serialization.load_pem_private_key(identity.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)  # load_identity has compared it with the certificate
    return SignedResult(result, sign(key, _said(ring, result)))


def is_genuine(ring: Ring, signed: SignedResult) -> bool:
    """Whether the member that the result is of has signed it, for this ring file."""
    key = _key(ring.members[signed.result.member].certificate)
    return verify(key, _said(ring.digest, signed.result), signed.signature)


@lru_cache(maxsize=1024)
def _key(certificate: str) -> ec.EllipticCurvePublicKey:
    return public_key(certificate)


def _said(ring: bytes, result: Result) -> bytes:
    return _DOMAIN + ring + json.dumps(_plain(result), separators=(",", ":")).encode()


def _plain(result: Result) -> list[Any]:
    return [result.member, result.view, result.round, result.value, result.samples, list(result.support)]


def plain_results(results: Iterable[SignedResult]) -> list[list[Any]]:
    """Results as JSON writes them, in the order of the members."""
    return [
        [*_plain(each.result), each.signature.hex()] for each in sorted(results, key=lambda each: each.result.member)
    ]


def read_results(ring: Ring, plain: Any) -> tuple[SignedResult, ...]:
    """Results of members of this ring within what it agreed on, not yet compared with certificates; or `ValueError`."""
    if ring.summary == "none" or not isinstance(plain, list) or len(plain) > len(ring.members):
        raise ValueError("results")
    found = tuple(_read(ring, each) for each in plain)
    members = [each.result.member for each in found]
    if members != sorted(set(members)):
        raise ValueError("members")
    return found


def _read(ring: Ring, plain: Any) -> SignedResult:
    member, view, number, value, samples, support, signature = plain
    lowest = _LOWEST if ring.task.kind == "regression" else 0.0
    if value is not None and (type(value) is not float or not lowest <= value <= 1.0):
        raise ValueError("value")
    samples = _whole(samples, 0, _MOST)
    if not isinstance(support, list) or len(support) not in (0, len(ring.task.labels)):
        raise ValueError("support")
    counts = tuple(_whole(each, 0, samples) for each in support)
    if counts and (ring.summary != "classes" or ring.task.kind == "regression"):
        raise ValueError("support that was not agreed on")
    if counts and ring.task.kind == "classification" and sum(counts) != samples:
        raise ValueError("support")
    if not isinstance(signature, str) or len(signature) != 2 * SEAL or signature != signature.lower():
        raise ValueError("signature")
    result = Result(
        _whole(member, 0, len(ring.members) - 1), _whole(view, 1, (1 << 32) - 1), _whole(number, 1, ring.rounds), value,
        samples, counts,
    )  # fmt: skip
    return SignedResult(result, bytes.fromhex(signature))


def _whole(plain: Any, low: int, high: int) -> int:
    if type(plain) is not int or not low <= plain <= high:
        raise ValueError("number")
    return plain
