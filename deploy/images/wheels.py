"""Resolves requirements within the lock, downloads their wheels by hash and unpacks them."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from deploy.images.imports import normalize
from deploy.images.platform import Platform

PYTHON_VERSION = "3.11"
_PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^ \\]+)((?: \\\n {4}--hash=sha256:[0-9a-f]{64})+)", re.M)
_HASH = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, order=True)
class Pin:
    """A locked distribution and the hashes of its files."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def line(self) -> str:
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{digest}" for digest in self.hashes)])


def read_pins(lock: str) -> tuple[Pin, ...]:
    """Return the pins of a lock without markers."""
    return tuple(Pin(name, version, tuple(_HASH.findall(hashes))) for name, version, hashes in _PIN.findall(lock))


def resolve(root: Path, requirements: Sequence[str], platform: Platform) -> tuple[Pin, ...]:
    """Return the closure of the requirements, each at the version and with the hashes of the tree's lock."""
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "-q", "--system-certs", "-"]
    command += ["--python-version", PYTHON_VERSION, "--python-platform", platform.python_platform]
    command += ["-c", str(root / "requirements.lock")]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
    done = subprocess.run(command, input="\n".join(requirements), capture_output=True, text=True, check=True)
    return read_pins(done.stdout)


def download(pins: Iterable[Pin], cache: Path, platform: Platform) -> dict[str, Path]:
    """Return the wheel of each pin by its normalized name, from a cache of that platform. pip compares the hashes."""
    cache.mkdir(parents=True, exist_ok=True)
    wanted = tuple(pins)
    missing = [pin for pin in wanted if _cached(pin, cache) is None]
    if missing:
        (cache / "wanted.txt").write_text("\n".join(pin.line for pin in missing) + "\n")
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "-d", str(cache)]
        command += ["--only-binary", ":all:", "--python-version", PYTHON_VERSION, "--implementation", "cp"]
        command += [option for tag in platform.wheel_tags for option in ("--platform", tag)]
        subprocess.run([*command, "-r", str(cache / "wanted.txt")], check=True)
    return {pin.name: _require_cached(pin, cache) for pin in wanted}


def unpack(wheel: Path, site_packages: Path) -> None:
    """Unpack a wheel. Its scripts are left out: images start modules."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if member.is_dir() or (target := _target(member.filename)) is None:
                continue
            path = site_packages / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(member))
            path.chmod(0o755 if (member.external_attr >> 16) & 0o111 else 0o644)


def _cached(pin: Pin, cache: Path) -> Path | None:
    for file in sorted(cache.glob("*.whl")):
        name, version = file.name.split("-")[:2]
        if normalize(name) == normalize(pin.name) and version == pin.version.replace("-", "_"):
            return file if _digest(file) in pin.hashes else None
    return None


def _require_cached(pin: Pin, cache: Path) -> Path:
    file = _cached(pin, cache)
    if file is None:
        raise FileNotFoundError(f"no wheel of {pin.name} {pin.version} has a pinned hash")
    return file


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _target(name: str) -> PurePosixPath | None:
    """Return where a member goes; None for scripts and headers. Raises ValueError for a path that leads outside."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"a wheel holds the path {name!r}")
    if not path.parts[0].endswith(".data"):
        return path
    return PurePosixPath(*path.parts[2:]) if path.parts[1] in ("purelib", "platlib") else None
