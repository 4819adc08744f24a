"""The mesh's certificate authority and the certificates it issues: on one machine anew at every start."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localmesh.settings import LOOPBACK, TRUST_DOMAIN
from localmesh.state.files import write_private
from localmesh.state.pki import IDENTITIES, Pki

__all__ = ["Authority", "Leaf", "Pki", "expiry", "issue_certificates"]

# They end with the run: the next start makes another authority, and the key of this one is nowhere. What must not
# happen is that a mesh
# which was left running, or a machine that slept, finds its parts unable to speak to each other.
LIFETIME = timedelta(days=3650)
# A clock that is set right after the start must not make them begin in the future.
EARLIER = timedelta(days=1)


@dataclass(frozen=True)
class Leaf:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key_pem: bytes = field(repr=False)


@dataclass(frozen=True)
class Authority:
    """A certificate authority that issues certificates of mesh names."""

    certificate: bytes
    key_pem: bytes = field(repr=False)

    @classmethod
    def create(cls, now: datetime, lifetime: timedelta) -> Authority:
        """Create an authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _authority(key, now - EARLIER, lifetime)
        return cls(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))

    @classmethod
    def load(cls, certificate: bytes, key_pem: bytes) -> Authority:
        """Load an authority that was stored. Raises ValueError if the two do not belong together."""
        key = _private_key(key_pem)
        if x509.load_pem_x509_certificate(certificate).public_key() != key.public_key():
            raise ValueError("the authority's key is not that of its certificate")
        return cls(certificate, key_pem)

    def issue(self, name: str, now: datetime, lifetime: timedelta, dns_names: Sequence[str]) -> Leaf:
        """Issue a certificate of a mesh name, for these host names and loopback."""
        key = ec.generate_private_key(ec.SECP256R1())
        ca = x509.load_pem_x509_certificate(self.certificate)
        leaf = _leaf(name, key, ca, _private_key(self.key_pem), (now - EARLIER, lifetime), dns_names)
        return Leaf(leaf.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def expiry(certificate: bytes) -> datetime:
    """Return when a certificate ends."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def issue_certificates(folder: Path, names: Sequence[str] = IDENTITIES, now: datetime | None = None) -> Pki:
    """Writes a new authority's certificate and one certificate and key for each name.

    The authority's key is never written: after this call no further identity can be issued.
    """
    pki = Pki(folder)
    now = now or datetime.now(UTC)
    authority = Authority.create(now, LIFETIME)
    write_private(pki.ca, authority.certificate)
    for name in names:
        leaf, identity = authority.issue(name, now, LIFETIME, (name, "localhost")), pki.of(name)
        write_private(identity.key, leaf.key_pem)
        write_private(identity.cert, leaf.certificate)
    return pki


def _authority(key: ec.EllipticCurvePrivateKey, start: datetime, lifetime: timedelta) -> x509.Certificate:
    name = _common_name(f"{TRUST_DOMAIN} mesh authority")
    public = key.public_key()
    return (
        _unsigned(name, name, public, (start, lifetime))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


def _leaf(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    validity: tuple[datetime, timedelta],
    dns_names: Sequence[str],
) -> x509.Certificate:
    alternatives: list[x509.GeneralName] = [
        x509.UniformResourceIdentifier(f"spiffe://{TRUST_DOMAIN}/{name}"),
        *map(x509.DNSName, dns_names),
        x509.IPAddress(ipaddress.ip_address(LOOPBACK)),
    ]
    roles = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _unsigned(_common_name(name), ca.subject, key.public_key(), validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(roles), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, validity: tuple[datetime, timedelta]
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity[0])
        .not_valid_after(validity[0] + EARLIER + validity[1])
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not of an elliptic curve")
    return key
