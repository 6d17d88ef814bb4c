"""A site's identity: a P-256 key that never leaves it, and a self-signed certificate that the others pin."""

import datetime
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from firma.errors import BadInput

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
ADDRESS = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):([0-9]{1,5})")
_KEY, _CERTIFICATE = "key.pem", "certificate.pem"


@dataclass(frozen=True, slots=True)
class Identity:
    """A site's key and certificate, both PEM."""

    key: bytes
    certificate: bytes

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


def make_identity(folder: Path, name: str, days: int = 730) -> Identity:
    """A new key and certificate in a folder; an existing key is never overwritten."""
    check_name(name)
    if (folder / _KEY).exists():
        raise BadInput(f"identity folder {str(folder)!r} already holds a key; use it, or choose another folder")
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made = Identity(private, _self_signed(key, name, days).public_bytes(serialization.Encoding.PEM))
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(folder / _CERTIFICATE, made.certificate, 0o644)
        _write(folder / _KEY, made.key, 0o600)
    except OSError as error:
        raise BadInput(f"identity folder {str(folder)!r}: cannot write there ({error.strerror})") from None
    return made


def load_identity(folder: Path) -> Identity:
    """The key and certificate in a folder; the key must be readable by its owner alone and fit the certificate."""
    try:
        mode = (folder / _KEY).stat().st_mode
        found = Identity((folder / _KEY).read_bytes(), (folder / _CERTIFICATE).read_bytes())
    except OSError as error:
        raise BadInput(
            f"identity folder {str(folder)!r}: no key and certificate ({error.strerror}); create them with firma init"
        ) from None
    if os.name == "posix" and mode & 0o077:
        raise BadInput(f"identity folder {str(folder)!r}: the key is readable by others; run chmod 600 {folder / _KEY}")
    try:
        public = serialization.load_pem_private_key(found.key, None).public_key()
    except (ValueError, TypeError):
        raise BadInput(f"identity folder {str(folder)!r}: {_KEY} is not a private key in PEM format") from None
    if public != read_certificate(found.certificate).public_key():
        raise BadInput(f"identity folder {str(folder)!r}: the key does not belong to the certificate")
    return found


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
    digest = hashlib.sha256(read_certificate(pem).public_bytes(serialization.Encoding.DER)).hexdigest().upper()
    return ":".join(digest[place : place + 2] for place in range(0, 64, 2))


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


def _write(path: Path, content: bytes, mode: int) -> None:
    """A new file with these permissions from its first byte on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
