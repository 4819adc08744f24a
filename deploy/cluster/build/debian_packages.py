"""Packages of Debian 12 that the node uses: fetched, checked and unpacked into a folder, never installed.

`debian.lock` has a line for each: name, version and SHA-256.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.cluster.errors import ClusterError

LOCK = Path(__file__).resolve().parent / "debian.lock"
_FETCH_SECONDS = 600
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
# Programs of the packages that the node's parts call, each with the words that start it.
WRAPPED = {
    "nft": "nft",
    "ipset": "ipset",
    "conntrack": "conntrack",
    **{
        f"{family}{suffix}": f"xtables-nft-multi {family}{suffix}"
        for family in ("iptables", "ip6tables")
        for suffix in ("", "-save", "-restore")
    },
}


@dataclass(frozen=True)
class Package:
    """One package, known by the digest of its file."""

    name: str
    version: str
    sha256: str


def parse_lock(text: str) -> list[Package]:
    """Returns the packages of a lock."""
    return [Package(*line.split()) for line in text.splitlines() if line and not line.startswith("#")]


def unpack_packages(packages: Sequence[Package], folder: Path) -> None:
    """Fetches packages by this machine's own sources and unpacks them into a folder. Raises ClusterError."""
    with tempfile.TemporaryDirectory() as work:
        _fetch(packages, Path(work))
        by_digest = {_digest(path): path for path in Path(work).glob("*.deb")}
        if changed := [package.name for package in packages if package.sha256 not in by_digest]:
            raise ClusterError(f"These packages do not have the pinned digest: {', '.join(changed)}.")
        folder.mkdir(parents=True, exist_ok=True)
        for package in packages:
            _run(["dpkg-deb", "-x", str(by_digest[package.sha256]), str(folder)], folder)


def wrapper(words: str, system: Path) -> str:
    """Returns a script that starts a program of the packages with their libraries, and no other program with them."""
    libraries = system / _LIBRARIES
    variables = f"LD_LIBRARY_PATH={libraries} XTABLES_LIBDIR={libraries / 'xtables'}"
    return f'#!/bin/sh\n{variables} exec {system / "usr" / "sbin"}/{words} "$@"\n'


def write_wrappers(system: Path, folder: Path) -> None:
    """Writes a script for each program that the node's parts call."""
    for name, words in WRAPPED.items():
        (folder / name).write_text(wrapper(words, system))
        (folder / name).chmod(0o755)


def _fetch(packages: Sequence[Package], work: Path) -> None:
    cache = work / "cache"
    cache.mkdir()
    options = ["-q", "-o", f"Dir::Cache={cache}", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"]
    _run(["apt-get", *options, "download", *(f"{each.name}={each.version}" for each in packages)], work)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
    )
    if done.returncode:
        raise ClusterError(
            f"The packages of build/debian.lock could not be had ({done.stderr.strip()[-400:]}). They are of Debian 12: "
            "run `apt-get update`, and on another system add its sources."
        )
