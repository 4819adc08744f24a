"""Puts seccomp profiles into the folder of a node in which its kubelet looks for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_PATTERN = "toolmesh-*.json"


def place_profiles(source: Path, target: Path) -> list[str]:
    """Write the profiles that are missing or differ, and return their names.

    A profile appears whole or not at all, because a kubelet may read it at any moment. Profiles of other versions stay:
    pods that name them may still run.
    """
    return [
        profile.name for profile in _differing(source, target) if _write(target / profile.name, profile.read_bytes())
    ]


def _differing(source: Path, target: Path) -> Iterator[Path]:
    for profile in sorted(source.glob(_PATTERN)):
        placed = target / profile.name
        if not placed.is_file() or placed.read_bytes() != profile.read_bytes():
            yield profile


def _write(path: Path, content: bytes) -> int:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        written = fresh.write_bytes(content)
        fresh.chmod(0o644)
        fresh.rename(path)
    finally:
        fresh.unlink(missing_ok=True)
    return written
