"""Certificates of a cluster: every identity once, renewed before they end, under one authority."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509

from localmesh.deploy.init_certs import AUTHORITY, LIFETIME, init_certificates
from localmesh.deploy.layout import Namespaces, tls_secret
from localmesh.state.pki import IDENTITIES
from localmesh.tests.deploy.memory_secrets import MemorySecrets

NAMESPACES = Namespaces()
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_every_identity_gets_a_certificate_of_its_name_once() -> None:
    store = MemorySecrets()
    assert init_certificates(store, NAMESPACES, NOW) == list(IDENTITIES)
    before = dict(store.content)
    assert init_certificates(store, NAMESPACES, NOW) == []
    assert store.content == before


def test_a_certificate_has_the_mesh_name_and_the_names_of_its_service() -> None:
    store = MemorySecrets()
    init_certificates(store, NAMESPACES, NOW)
    secret = store.content["toolmesh-executor", tls_secret("executor")]
    certificate = x509.load_pem_x509_certificate(secret["tls.crt"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://toolmesh.local/executor"]
    assert "executor.toolmesh-executor" in names.get_values_for_type(x509.DNSName)
    assert secret["ca.crt"] == store.content["toolmesh", AUTHORITY]["tls.crt"]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(secret["ca.crt"]))


def test_what_ends_soon_is_renewed_under_the_same_authority() -> None:
    store = MemorySecrets()
    init_certificates(store, NAMESPACES, NOW)
    authority, first = dict(store.content["toolmesh", AUTHORITY]), dict(store.content["toolmesh", "audit-tls"])
    assert init_certificates(store, NAMESPACES, NOW + LIFETIME / 2) == []
    assert init_certificates(store, NAMESPACES, NOW + LIFETIME - timedelta(days=1)) == list(IDENTITIES)
    assert store.content["toolmesh", AUTHORITY] == authority
    assert store.content["toolmesh", "audit-tls"] != first


def test_a_certificate_of_another_authority_is_replaced() -> None:
    store, other = MemorySecrets(), MemorySecrets()
    init_certificates(store, NAMESPACES, NOW)
    init_certificates(other, NAMESPACES, NOW)
    store.content["toolmesh", "audit-tls"] = other.content["toolmesh", "audit-tls"]
    assert init_certificates(store, NAMESPACES, NOW) == ["audit"]


def test_the_authoritys_key_is_in_no_secret_of_a_service() -> None:
    store = MemorySecrets()
    init_certificates(store, NAMESPACES, NOW)
    key = store.content["toolmesh", AUTHORITY]["tls.key"]
    assert [name for name, content in store.content.items() if key in content.values()] == [("toolmesh", AUTHORITY)]
