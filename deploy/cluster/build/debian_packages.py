"""Packages of Debian 12 that the node uses: fetched, checked and unpacked into a folder, never installed.

`debian.lock` has a line for each: name, version and SHA-256.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from deploy.cluster.errors import ClusterError
from deploy.images import debian
from deploy.images.platform import PLATFORMS

LOCK = Path(__file__).resolve().parent / "debian.lock"
# A node is built for x86_64 alone.
_PLATFORM = PLATFORMS["amd64"]
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


def unpack_packages(packages: Iterable[debian.Package], folder: Path, cache: Path) -> None:
    """Fetches packages by this machine's own sources and unpacks them into a folder. Raises ClusterError."""
    try:
        files = debian.download(packages, cache, _PLATFORM)
    except debian.DebianError as error:
        raise ClusterError(
            f"A package of build/debian.lock could not be had: {error}. They are of Debian 12: "
            "on another system add its sources."
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        subprocess.run(["dpkg-deb", "-x", str(file), str(folder)], check=True)


def wrapper(words: str, system: Path) -> str:
    """Returns a script that starts a program of the packages with their libraries, and no other program with them."""
    libraries = system / _PLATFORM.libraries
    variables = f"LD_LIBRARY_PATH={libraries} XTABLES_LIBDIR={libraries / 'xtables'}"
    return f'#!/bin/sh\n{variables} exec {system / "usr" / "sbin"}/{words} "$@"\n'


def write_wrappers(system: Path, folder: Path) -> None:
    """Writes a script for each program that the node's parts call."""
    for name, words in WRAPPED.items():
        (folder / name).write_text(wrapper(words, system))
        (folder / name).chmod(0o755)
