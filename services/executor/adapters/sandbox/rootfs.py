"""What a confined process sees of this machine: programs and libraries, the Python interpreter, and an /etc that says nothing.

Both kinds of sandbox show the same, so that a tool does not notice which it runs in. What is not listed here is absent: homes,
keys, the mesh's own code and packages, sockets, devices and every other process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NOBODY = 65534
"""The user and group that a process is inside."""
HOSTNAME = "sandbox"
EGRESS = "/run/egress.sock"
"""Where the way out is, for those who have one."""

_ETC: Mapping[str, str] = {
    "passwd": f"nobody:x:{NOBODY}:{NOBODY}:nobody:/tmp:/usr/sbin/nologin\n",
    "group": f"nogroup:x:{NOBODY}:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "hosts": "",
    "resolv.conf": "",
    "hostname": HOSTNAME + "\n",
}
_SHOWN_OF_ETC = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
)
"""What programs need of the real /etc: names of programs, where libraries are, and whom to trust on the web. All of it public."""
_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True, slots=True)
class Layout:
    """A read-only root, as what is shown where."""

    binds: tuple[tuple[str, str], ...]
    """Host paths and where they appear, in order: later ones lie over earlier ones."""
    links: tuple[tuple[str, str], ...]
    """Targets of symbolic links and where they are."""


def interpreter() -> str:
    """Return the path of the Python interpreter, which is the same inside as outside."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def system_view(folder: Path) -> Layout:
    """Return what every confined process sees. `folder` is a place that lasts as long as the view is used: its /etc is made there."""
    etc, empty = folder / "etc", folder / "empty"
    empty.mkdir(mode=0o755, exist_ok=True)
    binds = [("/usr", "/usr")]
    links = []
    for name in _TOP:
        path = Path("/") / name
        if path.is_symlink():
            links.append((str(path.readlink()), str(path)))
        elif path.is_dir():
            binds.append((str(path), str(path)))
    binds += _interpreter_binds(empty)
    return Layout(binds=(*binds, (str(etc), "/etc"), *_make_etc(etc)), links=tuple(links))


def _interpreter_binds(empty: Path) -> list[tuple[str, str]]:
    """Show the interpreter where it is, with its standard library and without what is installed into it."""
    binds = []
    for prefix in dict.fromkeys(os.path.realpath(path) for path in (sys.base_prefix, sys.base_exec_prefix)):
        if not _below(prefix, "/usr"):
            binds.append((prefix, prefix))
        installed = Path(prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        if installed.is_dir():
            binds.append((str(empty), str(installed)))
    return binds


def _make_etc(etc: Path) -> list[tuple[str, str]]:
    """Write the few files that libraries look for, and make room for what is shown of the real ones."""
    etc.mkdir(mode=0o755, exist_ok=True)
    for name, text in _ETC.items():
        (etc / name).write_text(text)
    shown = [path for path in map(Path, _SHOWN_OF_ETC) if path.exists()]
    for path in shown:
        place = etc / path.relative_to("/etc")
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if path.is_dir():
            place.mkdir(mode=0o755, exist_ok=True)
        else:
            place.touch(mode=0o644)
    return [(str(path), str(path)) for path in shown]


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
