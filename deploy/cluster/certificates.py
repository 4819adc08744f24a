"""Authorities, certificates and keys of the cluster. All end with it: every start issues new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deploy.cluster.addresses import API_SERVICE, DOMAIN, LOOPBACK, NODE, NODE_ADDRESS

LIFETIME = timedelta(days=365)
# A clock that is corrected after the start must not make certificates begin in the future.
EARLIER = timedelta(days=1)
API_NAMES = tuple(f"kubernetes{suffix}" for suffix in ("", ".default", ".default.svc", f".default.svc.{DOMAIN}"))


@dataclass(frozen=True)
class Subject:
    """One certificate: the user and group that Kubernetes reads from it, and the names of a server."""

    user: str
    group: str = ""
    names: Sequence[str] = ()
    addresses: Sequence[IPv4Address] = ()
    authority: str = "ca"

    @property
    def is_server(self) -> bool:
        return bool(self.names)


SUBJECTS: Mapping[str, Subject] = {
    "apiserver": Subject(
        "kube-apiserver", names=(*API_NAMES, "localhost"), addresses=(LOOPBACK, API_SERVICE, NODE_ADDRESS)
    ),
    "kubelet-server": Subject(f"system:node:{NODE}", names=(NODE,), addresses=(NODE_ADDRESS,)),
    "apiserver-kubelet-client": Subject("kube-apiserver-kubelet-client", "system:masters"),
    "front-proxy-client": Subject("front-proxy-client", authority="front-proxy-ca"),
    "admin": Subject("admin", "system:masters"),
    "controller-manager": Subject("system:kube-controller-manager"),
    "scheduler": Subject("system:kube-scheduler"),
    "kubelet": Subject(f"system:node:{NODE}", "system:nodes"),
    "kube-proxy": Subject("system:kube-proxy"),
    "netpol": Subject("toolmesh:netpol"),
}
AUTHORITIES = ("ca", "front-proxy-ca")


def issue_certificates(now: datetime | None = None) -> dict[str, bytes]:
    """Returns the content of every file: a certificate and a key for each name, and the keys of service accounts."""
    start = (now or datetime.now(UTC)) - EARLIER
    files: dict[str, bytes] = {}
    authorities = {name: _authority(name, start) for name in AUTHORITIES}
    for name, (certificate, key) in authorities.items():
        files |= _files(name, certificate, key)
    for name, subject in SUBJECTS.items():
        files |= _files(name, *_leaf(subject, authorities[subject.authority], start))
    return files | _service_account_keys()


def _authority(name: str, start: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name, "")
    certificate = (
        _unsigned(subject, subject, key, start)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _leaf(
    subject: Subject, authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey], start: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    issuer, issuer_key = authority
    key = ec.generate_private_key(ec.SECP256R1())
    role = ExtendedKeyUsageOID.SERVER_AUTH if subject.is_server else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _unsigned(_name(subject.user, subject.group), issuer.subject, key, start)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([role]), critical=False)
    )
    if subject.is_server:
        names = [x509.DNSName(name) for name in subject.names]
        addresses = [x509.IPAddress(address) for address in subject.addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName([*names, *addresses]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256()), key


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + LIFETIME)
    )


def _name(user: str, group: str) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _files(name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> dict[str, bytes]:
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    return {f"{name}.crt": pem, f"{name}.key": _private_pem(key)}


def _service_account_keys() -> dict[str, bytes]:
    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return {"sa.key": _private_pem(key), "sa.pub": public}


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
