"""What an installed MCP server is, and how it is started."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 600
_READABLE, _ENTERABLE = 0o444, 0o555
# Of /usr a sandbox shows programs, libraries and the standard libraries of its interpreters.
_SHOWN = ("/usr/bin", "/usr/sbin")


class InstallError(Exception):
    """A package cannot be installed. The message says why."""


@dataclass(frozen=True, slots=True)
class InstalledServer:
    """An MCP server in a read-only folder."""

    command: tuple[str, ...]
    mounts: tuple[Path, ...]
    package: str
    """Such as `pypi:mcp-server-time==2026.8.12`."""
    lock_digest: str


def interpreter() -> str:
    """Return the Python interpreter that every sandbox of this machine has."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def run_installer(command: Sequence[str], folder: Path | None = None) -> str:
    """Run an installer and return its output. Raises InstallError with its last line."""
    try:
        ran = subprocess.run(list(command), cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise InstallError(f"{command[0]} is not installed on this machine") from None
    except subprocess.TimeoutExpired:
        raise InstallError(f"{command[0]} took longer than {_SECONDS} seconds") from None
    if ran.returncode:
        lines = [line for line in ran.stderr.splitlines() if line.strip()]
        raise InstallError(lines[-1].strip() if lines else f"{command[0]} failed")
    return ran.stdout


def digest_of(lock: bytes) -> str:
    """Return the digest of a lock file."""
    return f"sha256:{hashlib.sha256(lock).hexdigest()}"


def make_read_only(folder: Path) -> None:
    """Let everyone read an installation and no one change it."""
    for path in [*folder.rglob("*"), folder]:
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(_ENTERABLE if runs else _READABLE)


def needs_mount(path: Path) -> bool:
    """Return whether a sandbox does not see a program or a prefix by itself."""
    return path != Path("/usr") and not any(path.is_relative_to(folder) for folder in _SHOWN)
