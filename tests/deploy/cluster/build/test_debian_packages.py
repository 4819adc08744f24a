"""Packages of the distribution are used only with the pinned digest, and their programs with their own libraries."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from deploy.cluster.build.debian_packages import LOCK, WRAPPED, unpack_packages, write_wrappers
from deploy.cluster.errors import ClusterError
from deploy.images.debian import Package, read_lock

HEXADECIMAL = set("0123456789abcdef")


def cached_package(cache: Path, work: Path) -> Package:
    """A real package in the cache, so that none is fetched."""
    (work / "DEBIAN").mkdir(parents=True)
    (work / "DEBIAN" / "control").write_text("Package: one\nVersion: 1\nArchitecture: amd64\nMaintainer: a\n")
    (work / "usr" / "sbin").mkdir(parents=True)
    (work / "usr" / "sbin" / "nft").write_text('#!/bin/sh\necho "$LD_LIBRARY_PATH" "$XTABLES_LIBDIR" "$@"\n')
    (work / "usr" / "sbin" / "nft").chmod(0o755)
    file = work.with_suffix(".deb")
    subprocess.run(["dpkg-deb", "--build", str(work), str(file)], check=True, capture_output=True)
    package = Package("one", "1", hashlib.sha256(file.read_bytes()).hexdigest())
    cache.mkdir()
    file.rename(cache / f"{package.name}_{package.sha256}.deb")
    return package


def test_every_package_is_pinned_by_version_and_digest() -> None:
    packages = read_lock(LOCK.read_text()).values()
    assert {"conntrack", "ipset", "iptables", "nftables"} <= {package.name for package in packages}
    assert all(len(package.sha256) == 64 and set(package.sha256) <= HEXADECIMAL for package in packages)


def test_a_program_of_a_package_runs_with_its_own_libraries(tmp_path: Path) -> None:
    package = cached_package(tmp_path / "cache", tmp_path / "one")
    unpack_packages([package], tmp_path / "system", tmp_path / "cache")
    (tmp_path / "bin").mkdir()
    write_wrappers(tmp_path / "system", tmp_path / "bin")
    assert {path.name for path in (tmp_path / "bin").iterdir()} == WRAPPED.keys()
    printed = subprocess.run([tmp_path / "bin" / "nft", "list", "a b"], capture_output=True, text=True, check=True)
    libraries = tmp_path / "system" / "usr" / "lib" / "x86_64-linux-gnu"
    assert printed.stdout == f"{libraries} {libraries / 'xtables'} list a b\n"


def test_a_package_of_another_digest_is_not_unpacked(tmp_path: Path) -> None:
    package = cached_package(tmp_path / "cache", tmp_path / "one")
    with (tmp_path / "cache" / f"one_{package.sha256}.deb").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ClusterError):
        unpack_packages([package], tmp_path / "system", tmp_path / "cache")
    assert not (tmp_path / "system").exists()
