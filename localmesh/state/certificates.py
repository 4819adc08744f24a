"""The mesh's certificate authority and the certificates it issues, created at every start."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localmesh.settings import LOOPBACK, TRUST_DOMAIN
from localmesh.state.files import write_private
from localmesh.state.pki import IDENTITIES, Pki

__all__ = ["Pki", "issue_certificates"]

# They end with the run: the next start makes another authority, and the key of this one is nowhere. What must not
# happen is that a mesh
# which was left running, or a machine that slept, finds its parts unable to speak to each other.
LIFETIME = timedelta(days=3650)
# A clock that is set right after the start must not make them begin in the future.
EARLIER = timedelta(days=1)


def issue_certificates(folder: Path, names: Sequence[str] = IDENTITIES, now: datetime | None = None) -> Pki:
    """Writes a new authority's certificate and one certificate and key for each name.

    The authority's key is never written: after this call no further identity can be issued.
    """
    pki = Pki(folder)
    start = (now or datetime.now(UTC)) - EARLIER
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _authority(ca_key, start)
    write_private(pki.ca, ca.public_bytes(serialization.Encoding.PEM))
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        identity = pki.of(name)
        write_private(identity.key, _key_pem(key))
        write_private(identity.cert, _leaf(name, key, ca, ca_key, start).public_bytes(serialization.Encoding.PEM))
    return pki


def _authority(key: ec.EllipticCurvePrivateKey, start: datetime) -> x509.Certificate:
    name = _common_name(f"{TRUST_DOMAIN} mesh authority")
    public = key.public_key()
    return (
        _unsigned(name, name, public, start)
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
    start: datetime,
) -> x509.Certificate:
    alternatives: list[x509.GeneralName] = [
        x509.UniformResourceIdentifier(f"spiffe://{TRUST_DOMAIN}/{name}"),
        x509.DNSName(name),
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address(LOOPBACK)),
    ]
    roles = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _unsigned(_common_name(name), ca.subject, key.public_key(), start)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(roles), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, start: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + LIFETIME)
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
