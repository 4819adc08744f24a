"""Environments of their own for what the bench needs and the mesh must not: the tools that measure, and every peer.
Each is made once,
from a lock with hashes, and rebuilt when its lock changes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "bench"
_STAMP = ".installed"


def environment(name: str, lock: Path, python: str = sys.executable) -> Path:
    """Return the folder of an environment with what the lock names, and nothing else. Raises CalledProcessError where
    it cannot be had."""
    place, digest = CACHE / name, hashlib.sha256(lock.read_bytes()).hexdigest()
    stamp = place / _STAMP
    if stamp.exists() and stamp.read_text() == digest:
        return place
    print(f"setting up the environment of {name} (once)", file=sys.stderr, flush=True)
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([python, "-m", "venv", "--without-pip", str(place)], check=True)
    uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "-q", "--system-certs", "--compile-bytecode"]
    subprocess.run(
        [*uv, "--python", str(place / "bin" / "python"), "--require-hashes", "-r", str(lock)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    stamp.write_text(digest)
    return place


def python_from(least: tuple[int, int]) -> str | None:
    """Return a Python of at least this version, the oldest that is found: on the PATH, or kept by pyenv or uv. None
    if there is none."""
    for candidate in _candidates(least):
        check = f"import sys; sys.exit(sys.version_info < {least})"
        try:
            found = subprocess.run([candidate, "-c", check], capture_output=True, check=False)
        except OSError:
            continue
        if found.returncode == 0:
            return candidate
    return None


def _candidates(least: tuple[int, int]) -> Iterator[str]:
    yield sys.executable
    for minor in range(least[1], 15):
        yield f"python{least[0]}.{minor}"
        for kept in (".pyenv/versions", ".local/share/uv/python"):
            for folder in sorted((Path.home() / kept).glob(f"*{least[0]}.{minor}.*")):
                yield str(folder / "bin" / "python3")
