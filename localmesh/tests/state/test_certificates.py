from __future__ import annotations

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from localmesh.state.certificates import issue_certificates
from localmesh.state.pki import IDENTITIES, Pki


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return issue_certificates(tmp_path)


@pytest.mark.parametrize("name", IDENTITIES)
def test_a_certificate_carries_its_name_in_every_form_that_is_asked_for(pki: Pki, name: str) -> None:
    certificate = x509.load_pem_x509_certificate(pki.of(name).cert.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"spiffe://toolmesh.local/{name}"]
    assert names.get_values_for_type(x509.DNSName) == [name, "localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    roles = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(roles) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}


@pytest.mark.parametrize("ahead", [timedelta(days=-1, minutes=1), timedelta(0), timedelta(days=1000)])
def test_certificates_last_as_long_as_a_mesh_may_be_left_running(tmp_path: Path, ahead: timedelta) -> None:
    now = datetime.now(UTC)
    pki = issue_certificates(tmp_path, ["executor"], now)
    for path in (pki.ca, pki.of("executor").cert):
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        assert certificate.not_valid_before_utc < now + ahead < certificate.not_valid_after_utc


def test_two_names_of_one_mesh_trust_each_other(pki: Pki) -> None:
    assert shake_hands(pki, pki)


def test_a_name_of_another_mesh_is_not_trusted(pki: Pki, tmp_path: Path) -> None:
    other = issue_certificates(tmp_path / "other", ["executor"])
    with pytest.raises(ssl.SSLError):
        shake_hands(pki, other)


def test_the_authoritys_key_is_nowhere(pki: Pki) -> None:
    keys = {path.stem for path in pki.folder.glob("*.key")}
    assert keys == set(IDENTITIES)


def shake_hands(server: Pki, client: Pki) -> bool:
    """True if the server's executor and the client's accept each other's certificates."""
    ends = socket.socketpair()
    listening = context(server, ssl.Purpose.CLIENT_AUTH)
    listening.verify_mode = ssl.CERT_REQUIRED
    failures: list[Exception] = []

    def serve() -> None:
        try:
            with listening.wrap_socket(ends[0], server_side=True) as stream:
                stream.sendall(b"!")
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with context(client, ssl.Purpose.SERVER_AUTH).wrap_socket(ends[1], server_hostname="executor") as stream:
            return stream.recv(1) == b"!"
    finally:
        ends[1].close()
        thread.join()


def context(pki: Pki, purpose: ssl.Purpose) -> ssl.SSLContext:
    made = ssl.create_default_context(purpose, cafile=str(pki.ca))
    made.load_cert_chain(pki.of("executor").cert, pki.of("executor").key)
    return made
