"""Certificates of the cluster: whom each names, what it may be used for, and that its authority signed it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deploy.cluster.addresses import API_SERVICE, LOOPBACK, NODE_ADDRESS
from deploy.cluster.certificates import AUTHORITIES, EARLIER, LIFETIME, SUBJECTS, issue_certificates

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return issue_certificates(NOW)


def load(files: dict[str, bytes], name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(files[f"{name}.crt"])


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_certificate_is_signed_by_its_authority_and_has_its_key(files: dict[str, bytes], name: str) -> None:
    certificate = load(files, name)
    certificate.verify_directly_issued_by(load(files, SUBJECTS[name].authority))
    key = serialization.load_pem_private_key(files[f"{name}.key"], None)
    assert key.public_key() == certificate.public_key()


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_certificate_names_its_user_and_one_role(files: dict[str, bytes], name: str) -> None:
    subject, certificate = SUBJECTS[name], load(files, name)
    users = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert (users, groups) == ([subject.user], [subject.group] if subject.group else [])
    role = ExtendedKeyUsageOID.SERVER_AUTH if subject.is_server else ExtendedKeyUsageOID.CLIENT_AUTH
    assert list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [role]


def test_only_authorities_sign_certificates(files: dict[str, bytes]) -> None:
    signing = set()
    for name in (*AUTHORITIES, *SUBJECTS):
        if load(files, name).extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            signing.add(name)
    assert signing == set(AUTHORITIES)


def test_the_api_server_answers_at_the_machines_loopback_too(files: dict[str, bytes]) -> None:
    names = load(files, "apiserver").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {LOOPBACK, API_SERVICE, NODE_ADDRESS} == set(names.get_values_for_type(x509.IPAddress))
    assert "kubernetes.default.svc.cluster.local" in names.get_values_for_type(x509.DNSName)


def test_certificates_begin_before_the_clock_and_end(files: dict[str, bytes]) -> None:
    certificate = load(files, "admin")
    assert certificate.not_valid_before_utc == NOW - EARLIER
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == LIFETIME <= timedelta(days=365)


def test_administrators_are_the_admin_and_the_api_server() -> None:
    masters = {name for name, subject in SUBJECTS.items() if subject.group == "system:masters"}
    assert masters == {"admin", "apiserver-kubelet-client"}
