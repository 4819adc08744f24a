"""Locks the third-party packages of a pack by hash and downloads their wheels: the only step that needs the network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from services.executor.adapters.runners.packs.wheels import FOLDER, LOCK

REQUIREMENTS = "requirements.txt"
_SECONDS = 900


class LockError(Exception):
    """The packages cannot be locked; the message is the resolver's."""


def add_requirements(pack: Path, requirements: Iterable[str]) -> None:
    """Add requirements to those of a pack. One of the same package is replaced."""
    path = pack / REQUIREMENTS
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for requirement in requirements:
        name = _name_of(requirement)
        lines = [*(line for line in lines if _name_of(line) != name), requirement]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def lock_packages(pack: Path) -> list[str]:
    """Write the lock and the wheels of a pack, and return the names of the wheels. Raises LockError.

    On a failure the pack keeps what it had.
    """
    with tempfile.TemporaryDirectory(prefix="toolmesh-lock-") as scratch:
        lock, wheels = Path(scratch) / LOCK, Path(scratch) / FOLDER
        compile_lock = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "-q", "--system-certs"]
        compile_lock += ["--python", sys.executable, "--only-binary", ":all:", "--generate-hashes", "--no-header"]
        compile_lock += ["--no-annotate", "--no-emit-index-url", str(pack / REQUIREMENTS), "-o", str(lock)]
        _run(compile_lock)
        download = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        download += ["--only-binary=:all:", "--require-hashes", "-r", str(lock), "-d", str(wheels)]
        wheels.mkdir()
        _run(download)
        shutil.rmtree(pack / FOLDER, ignore_errors=True)
        shutil.copytree(wheels, pack / FOLDER)
        shutil.copyfile(lock, pack / LOCK)
        return sorted(path.name for path in wheels.iterdir())


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise LockError(f"{Path(command[0]).name} is not installed") from None
    except subprocess.TimeoutExpired:
        raise LockError(f"it took longer than {_SECONDS} seconds") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise LockError(" ".join(lines[-3:]) or "the resolver failed")


def _name_of(requirement: str) -> str:
    name = re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()
