"""Locks the third-party packages of a pack by hash and downloads their wheels: the only step that needs the network."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from authoring.packs.wheel_target import WheelTarget
from services.executor.adapters.runners.packs.choose_wheels import fitting_wheel
from services.executor.adapters.runners.packs.package_lock import FOLDER, LOCK, LockedPackage, WheelError, read_lock
from services.executor.adapters.runners.packs.packs import MAX_BYTES

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


def lock_packages(pack: Path, targets: Sequence[WheelTarget]) -> list[str]:
    """Write the lock of a pack and the wheels for all targets, and return the names of the wheels. Raises LockError.

    On a failure the pack keeps what it had.
    """
    with tempfile.TemporaryDirectory(prefix="toolmesh-lock-") as scratch:
        lock, wheels = Path(scratch) / LOCK, Path(scratch) / FOLDER
        _compile_lock(pack / REQUIREMENTS, lock, min(targets, key=lambda target: int(target.python[2:])).python)
        wheels.mkdir()
        try:
            packages = read_lock(lock.read_text(encoding="utf-8"))
            for target in targets:
                _download(packages, target, wheels, Path(scratch) / "wanted.txt")
        except WheelError as error:
            raise LockError(str(error)) from None
        _require_size(wheels)
        shutil.rmtree(pack / FOLDER, ignore_errors=True)
        shutil.copytree(wheels, pack / FOLDER)
        shutil.copyfile(lock, pack / LOCK)
        return sorted(path.name for path in wheels.iterdir())


def _compile_lock(requirements: Path, lock: Path, oldest_python: str) -> None:
    """Resolve for every interpreter from the oldest on; what only some need has a marker."""
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "-q", "--system-certs", "--universal"]
    command += ["--python", sys.executable, "--python-version", oldest_python, "--only-binary", ":all:"]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
    _run([*command, str(requirements), "-o", str(lock)])


def _download(packages: Iterable[LockedPackage], target: WheelTarget, wheels: Path, wanted: Path) -> None:
    """Download the wheels that a target needs and that fit none of those that are there."""
    missing = _missing(packages, target, wheels)
    if not missing:
        return
    # Without markers: pip would compare them with the interpreter that it runs in.
    lines = [" ".join([f"{each.name}=={each.version}", *_hash_options(each)]) for each in missing]
    wanted.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "--implementation", "cp", "--python-version", target.python]
    command += [option for platform in target.platforms for option in ("--platform", platform)]
    try:
        _run([*command, "-r", str(wanted), "-d", str(wheels)])
    except LockError as error:
        raise LockError(f"for {target}: {error}; --python and --platform leave interpreters out") from None
    if missing := _missing(missing, target, wheels):
        raise LockError(f"{missing[0].name}=={missing[0].version} has no wheel for {target}")


def _missing(packages: Iterable[LockedPackage], target: WheelTarget, wheels: Path) -> list[LockedPackage]:
    digests = {path.name: _digest_of(path) for path in wheels.iterdir()}
    needed = (package for package in packages if target.needs(package))
    return [package for package in needed if fitting_wheel(package, digests, target.ranks) is None]


def _hash_options(package: LockedPackage) -> list[str]:
    return [f"--hash=sha256:{digest}" for digest in sorted(package.digests)]


def _require_size(wheels: Path) -> None:
    size = sum(path.stat().st_size for path in wheels.iterdir())
    if size > MAX_BYTES:
        raise LockError(
            f"the wheels have {size >> 20} MiB, and a pack has {MAX_BYTES >> 20} MiB at most;"
            " --python and --platform leave interpreters out"
        )


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
