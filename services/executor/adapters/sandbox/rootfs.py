"""Builds the read-only root file system of a sandbox: programs, libraries, the Python interpreter and a minimal /etc.

Bubblewrap and gVisor use the same root, so a tool behaves the same in both. Everything not listed here is absent: home
directories, keys, the mesh's own code and packages, sockets, devices and other processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NOBODY = 65534
"""User and group id inside the sandbox."""
HOSTNAME = "sandbox"
EGRESS_SOCKET = "/run/egress.sock"
"""Path of the egress proxy's socket inside the sandbox."""

_ETC: Mapping[str, str] = {
    "passwd": f"nobody:x:{NOBODY}:{NOBODY}:nobody:/tmp:/usr/sbin/nologin\n",
    "group": f"nogroup:x:{NOBODY}:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "hosts": "",
    "resolv.conf": "",
    "hostname": HOSTNAME + "\n",
}
_ETC_BINDS = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
)
"""Public parts of the host's /etc that programs need: alternatives, the linker cache and CA certificates."""
_TOP_LEVEL = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True, slots=True)
class RootfsLayout:
    """The mounts and links of a read-only root."""

    binds: tuple[tuple[str, str], ...]
    """Bind mounts (host path, path inside); later ones cover earlier ones."""
    links: tuple[tuple[str, str], ...]
    """Symbolic links (target, path inside)."""


def interpreter_path() -> str:
    """Return the path of the Python interpreter, which is the same inside and outside."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def build_rootfs(folder: Path) -> RootfsLayout:
    """Return the root of every sandbox. Its /etc is written into `folder`, which must exist as long as the layout is
    used."""
    etc, empty = folder / "etc", folder / "empty"
    empty.mkdir(mode=0o755, exist_ok=True)
    binds = [("/usr", "/usr")]
    links = []
    for name in _TOP_LEVEL:
        path = Path("/") / name
        if path.is_symlink():
            links.append((str(path.readlink()), str(path)))
        elif path.is_dir():
            binds.append((str(path), str(path)))
    binds += _interpreter_binds(empty)
    return RootfsLayout(binds=(*binds, (str(etc), "/etc"), *_make_etc(etc)), links=tuple(links))


def _interpreter_binds(empty: Path) -> list[tuple[str, str]]:
    """Mount the interpreter and its standard library; hide its site-packages behind an empty directory."""
    binds = []
    for prefix in dict.fromkeys(os.path.realpath(path) for path in (sys.base_prefix, sys.base_exec_prefix)):
        if not _is_within(prefix, "/usr"):
            binds.append((prefix, prefix))
        installed = Path(prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        if installed.is_dir():
            binds.append((str(empty), str(installed)))
    return binds


def _make_etc(etc: Path) -> list[tuple[str, str]]:
    """Write the files that libraries look for and create mount points for the parts of the host's /etc."""
    etc.mkdir(mode=0o755, exist_ok=True)
    for name, text in _ETC.items():
        (etc / name).write_text(text)
    present = [path for path in map(Path, _ETC_BINDS) if path.exists()]
    for path in present:
        mount_point = etc / path.relative_to("/etc")
        mount_point.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if path.is_dir():
            mount_point.mkdir(mode=0o755, exist_ok=True)
        else:
            mount_point.touch(mode=0o644)
    return [(str(path), str(path)) for path in present]


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
