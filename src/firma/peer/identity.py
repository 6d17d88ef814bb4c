"""A site's identity: a P-256 key that never leaves it, and a self-signed certificate that the others pin."""

import datetime
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from firma.errors import BadInput

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
ADDRESS = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):([0-9]{1,5})")
_KEY, _CERTIFICATE = "key.pem", "certificate.pem"
_ENCRYPTED = b"ENCRYPTED"  # in the first line of a key that is, and in none that is not
_SOON = datetime.timedelta(days=30)
Passphrase = Callable[[], bytes]  # asked only if the key is encrypted


@dataclass(frozen=True, slots=True)
class Identity:
    """A site's key and certificate, both PEM; the key as TLS needs it, not encrypted, and in memory only."""

    key: bytes
    certificate: bytes
    folder: Path | None = field(default=None, compare=False)  # where they are, and members' statements with them

    def __repr__(self) -> str:
        return f"Identity({fingerprint(self.certificate)})"  # a key must not get into a log


def check_name(name: str) -> str:
    """A name that fits a certificate: lower-case letters, digits and hyphens."""
    if not NAME.fullmatch(name):
        raise BadInput(f"name = {name!r}: must be 1 to 63 lower-case letters, digits and hyphens, such as hospital-a")
    return name


def check_address(address: str) -> str:
    """HOST:PORT."""
    found = ADDRESS.fullmatch(address)
    if not found or not 0 < int(found[2]) < 65536:
        raise BadInput(f"address = {address!r}: must be HOST:PORT, such as ring.hospital-a.org:7443")
    return address


def make_identity(folder: Path, name: str, days: int = 730, passphrase: bytes = b"") -> Identity:
    """A new key and certificate in a folder; an existing key is never overwritten.

    With a passphrase, the key on disk is encrypted with it.
    """
    check_name(name)
    if (folder / _KEY).exists():
        raise BadInput(f"identity folder {str(folder)!r} already holds a key; use it, or choose another folder")
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made = Identity(private, _self_signed(key, name, days).public_bytes(serialization.Encoding.PEM), folder)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(folder / _CERTIFICATE, made.certificate, 0o644)
        _write(folder / _KEY, _encrypted(key, passphrase) if passphrase else made.key, 0o600)
    except OSError as error:
        raise BadInput(f"identity folder {str(folder)!r}: cannot write there ({error.strerror})") from None
    return made


def load_identity(folder: Path, passphrase: Passphrase | None = None) -> Identity:
    """The key and certificate in a folder; the key must be readable by its owner alone and fit the certificate.

    `passphrase` is called if the key is encrypted.
    """
    try:
        mode = (folder / _KEY).stat().st_mode
        found = Identity((folder / _KEY).read_bytes(), (folder / _CERTIFICATE).read_bytes(), folder)
    except OSError as error:
        raise BadInput(
            f"identity folder {str(folder)!r}: no key and certificate ({error.strerror}); create them with firma init"
        ) from None
    if os.name == "posix" and mode & 0o077:
        raise BadInput(f"identity folder {str(folder)!r}: the key is readable by others; run chmod 600 {folder / _KEY}")
    encrypted = _ENCRYPTED in found.key.partition(b"\n")[0] or b"Proc-Type: 4,ENCRYPTED" in found.key
    if encrypted and passphrase is None:
        raise BadInput(f"identity folder {str(folder)!r}: {_KEY} is encrypted; pass --passphrase-file")
    secret = passphrase() if encrypted and passphrase is not None else None
    try:
        key = serialization.load_pem_private_key(found.key, secret)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        wrong = "the passphrase is wrong, or the key is damaged" if encrypted else "is not a private key in PEM format"
        raise BadInput(f"identity folder {str(folder)!r}: {_KEY}: {wrong}") from None
    if key.public_key() != read_certificate(found.certificate).public_key():
        raise BadInput(f"identity folder {str(folder)!r}: the key does not belong to the certificate")
    if not encrypted:
        return found
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Identity(plain, found.certificate, folder)


def make_private(folder: Path) -> str:
    """Take the permissions of others off an identity folder and its key; says so, or "" if they had none."""
    if os.name != "posix":
        return ""
    changed = []
    try:
        for path, name in ((folder, "folder"), (folder / _KEY, "key")):
            mode = path.stat().st_mode
            if mode & 0o077:
                path.chmod(mode & 0o700)
                changed.append(name)
    except OSError:  # load_identity says what is wrong
        pass
    if "key" in changed:
        return (
            f"identity folder {str(folder)!r}: the key was readable by others and is private now; if anybody else uses "
            "this machine, create a new one with firma init"
        )
    return f"identity folder {str(folder)!r} could be read by others; it is private now" if changed else ""


@dataclass(frozen=True, slots=True)
class Validity:
    """The days on which a certificate is valid."""

    first: datetime.datetime
    last: datetime.datetime

    def trouble(self, now: datetime.datetime | None = None) -> str:
        """Why the certificate cannot be used now; "" if it can."""
        now = now or datetime.datetime.now(datetime.UTC)
        if now > self.last:
            return f"expired on {self.last:%Y-%m-%d}; create a new one with firma init and agree on a new ring file"
        if now < self.first:
            return f"is not valid before {self.first:%Y-%m-%d}, and this machine says {now:%Y-%m-%d}; check its clock"
        return ""

    def warning(self, now: datetime.datetime | None = None) -> str:
        """That the certificate expires within a month; "" if it does not."""
        now = now or datetime.datetime.now(datetime.UTC)
        if not now <= self.last < now + _SOON:
            return ""
        days = (self.last - now).days
        return f"expires on {self.last:%Y-%m-%d}, in {days} days; plan a new one and a new ring file"


def validity(pem: bytes) -> Validity:
    """When a certificate is valid."""
    certificate = read_certificate(pem)
    return Validity(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def read_certificate(pem: bytes) -> x509.Certificate:
    """A certificate as `firma init` makes them: P-256, for one name."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        public = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise BadInput("certificate: not in PEM format; paste what firma init wrote") from None
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise BadInput("certificate: the key must be P-256; create it with firma init")
    return certificate


def certified_name(certificate: x509.Certificate) -> str:
    """The name that a certificate is for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return ""
    found = names.get_values_for_type(x509.DNSName)
    return found[0] if len(found) == 1 else ""


def fingerprint(pem: bytes) -> str:
    """SHA-256 of the certificate, in pairs as people read them out."""
    digest = fingerprint_bytes(pem).hex().upper()
    return ":".join(digest[place : place + 2] for place in range(0, 64, 2))


def fingerprint_bytes(pem: bytes) -> bytes:
    """(32,) SHA-256 of the certificate."""
    return hashlib.sha256(read_certificate(pem).public_bytes(serialization.Encoding.DER)).digest()


def canonical(pem: bytes) -> bytes:
    """The same certificate in one spelling, so that two can be compared byte by byte."""
    return read_certificate(pem).public_bytes(serialization.Encoding.PEM)


def _self_signed(key: ec.EllipticCurvePrivateKey, name: str, days: int) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)  # it vouches for nobody else
        .sign(key, hashes.SHA256())
    )


def _encrypted(key: ec.EllipticCurvePrivateKey, passphrase: bytes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(passphrase),
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """A new file with these permissions from its first byte on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
