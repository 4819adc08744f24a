"""When replaced TLS files are noticed, and what is never used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from libs.common.rpc.tls_files import CHECK_SECONDS, TlsFiles
from libs.common.tests.rpc.tls_folder import TlsFolder


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder(pki: Any, tmp_path: Path) -> TlsFolder:
    folder = TlsFolder(tmp_path / "tls")
    folder.replace(pki, "authz")
    return folder


def test_replaced_files_are_returned_once_and_looked_at_now_and_then(pki: Any, folder: TlsFolder) -> None:
    clock = Clock()
    files = TlsFiles(folder, clock)
    first = files.current
    assert first.certificate == pki.of("authz").cert.read_bytes()
    folder.replace(pki, "audit")
    assert files.renewed() is None
    clock.now += CHECK_SECONDS
    renewed = files.renewed()
    assert renewed is not None
    assert renewed == files.current != first
    assert renewed.certificate == pki.of("audit").cert.read_bytes()
    clock.now += CHECK_SECONDS
    assert files.renewed() is None


def test_the_same_content_in_new_files_is_nothing_new(pki: Any, folder: TlsFolder) -> None:
    clock = Clock()
    files = TlsFiles(folder, clock)
    folder.replace(pki, "authz")
    clock.now += CHECK_SECONDS
    assert files.renewed() is None


def test_what_does_not_fit_is_not_used_and_looked_at_again(pki: Any, folder: TlsFolder) -> None:
    clock = Clock()
    files = TlsFiles(folder, clock)
    first = files.current

    def look() -> object:
        clock.now += CHECK_SECONDS
        return files.renewed()

    # Only the certificate has been replaced so far.
    folder.replace(pki, "audit", key_of="authz")
    assert look() is None
    folder.tls_key.resolve().unlink()
    assert look() is None
    folder.replace(pki, "registry")
    folder.tls_ca.resolve().write_text("no certificate")
    assert look() is None
    assert files.current is first
    folder.replace(pki, "audit")
    assert look() is files.current is not first


def test_a_missing_file_ends_the_start(folder: TlsFolder) -> None:
    folder.tls_ca.unlink()
    with pytest.raises(FileNotFoundError):
        TlsFiles(folder)
