"""Builds the read-only root file system of a sandbox: programs, libraries, the Python interpreter and a minimal /etc.

Bubblewrap and gVisor use the same root, so a tool behaves the same in both. Everything not listed here is absent: home
directories, keys, the mesh's own code and packages, sockets, devices and other processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
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
_USR_PARTS = (
    "bin",
    "sbin",
    "lib32",
    "lib64",
    "libx32",
    "lib/locale",
    "lib/ssl",
    "share/ca-certificates",
    "share/pki",
    "share/zoneinfo",
)
"""The parts of /usr that programs of the distribution need: links of /etc/ssl and /etc/pki lead into some of them."""
_MULTIARCH = ("x86_64-linux-gnu", "aarch64-linux-gnu")
_PACKAGES = ("site-packages", "dist-packages", "python3*/site-packages", "python3*/dist-packages", "node_modules")
_PROGRAMS_AND_LIBRARIES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders of the root; most distributions have links to those of /usr there, and some links in /usr too."""


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


def build_rootfs(folder: Path, further: Sequence[Path] = ()) -> RootfsLayout:
    """Return the root of every sandbox, with `further` folders of the host. Its /etc is written into `folder`, which
    must exist as long as the layout is used."""
    etc, empty = folder / "etc", folder / "empty"
    empty.mkdir(mode=0o755, exist_ok=True)
    places = [path / name for path in (Path("/"), Path("/usr")) for name in _PROGRAMS_AND_LIBRARIES]
    links = [(str(path.readlink()), str(path)) for path in places if path.is_symlink()]
    top = [path for path in map(Path("/").joinpath, _PROGRAMS_AND_LIBRARIES) if path.is_dir() and not path.is_symlink()]
    shown = _outermost([*top, *system_parts(), *_interpreter_parts()])
    binds = [(path, path) for path in shown]
    binds += ((str(empty), path) for path in _package_folders(shown))
    binds += ((str(path), str(path)) for path in further)
    return RootfsLayout(binds=(*binds, (str(etc), "/etc"), *_make_etc(etc)), links=tuple(links))


def system_parts(usr: Path = Path("/usr")) -> list[Path]:
    """Return what programs of the distribution need of /usr: programs, shared libraries and the data of these.

    Applications are installed beside it, in /usr/lib, /usr/share and /usr/local, and are not shown.
    """
    lib, lib64 = usr / "lib", usr / "lib64"
    libraries = [folder for folder in map(lib.joinpath, _MULTIARCH) if folder.is_dir()]
    # Without multiarch the libraries lie in lib64, or directly in lib.
    if not libraries and (lib64.is_symlink() or not lib64.is_dir()):
        libraries = [lib]
    # The standard libraries of the distribution's interpreters; packages lie elsewhere or are covered.
    standard = [path for path in lib.glob("python3.*") if path.name.removeprefix("python3.").isdigit()]
    parts = [*map(usr.joinpath, _USR_PARTS), *libraries, *sorted(standard)]
    return [path for path in parts if path.exists() and not path.is_symlink()]


def _interpreter_parts() -> list[Path]:
    """Return the interpreter, its standard library and its shared library, and nothing else of its prefix."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    parts = [Path(interpreter_path())]
    for prefix in dict.fromkeys(Path(path).resolve() for path in (sys.base_prefix, sys.base_exec_prefix)):
        for lib in dict.fromkeys((prefix / "lib", prefix / sys.platlibdir)):
            parts += [lib / version, *sorted(lib.glob("libpython3*.so*"))]
    return [path for path in parts if path.exists()]


def _outermost(paths: Sequence[Path]) -> list[str]:
    """Return the paths that do not lie in another one, without duplicates."""
    folders = {path for path in paths if path.is_dir()}
    return list(dict.fromkeys(str(path) for path in paths if folders.isdisjoint(path.parents)))


def _package_folders(shown: Iterable[str]) -> list[str]:
    """Return the folders of installed packages inside what is shown, which an empty folder covers."""
    found = (folder for path in shown for pattern in _PACKAGES for folder in sorted(Path(path).glob(pattern)))
    return list(dict.fromkeys(str(folder) for folder in found if folder.is_dir()))


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
