"""Writing files so that a reader sees the old content or the new one, never half of it."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

ROTATE_BYTES = 20 * 1024 * 1024


def write_private(path: Path, content: bytes) -> None:
    """Replaces the file atomically; only its owner can read it, and its folder if that is new."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)


def write_json(path: Path, document: Any) -> None:
    """Replaces the file with the document, atomically and readable by its owner only."""
    write_private(path, json.dumps(document, indent=2).encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in the file; empty when there is no file, or none that can be read as one."""
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def rotate(path: Path) -> None:
    """Moves a log that has grown past the limit aside, over the one moved before."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > ROTATE_BYTES:
            path.replace(path.with_name(path.name + ".1"))


def size_of(path: Path) -> int:
    """Returns how much is in a file; nothing where there is none."""
    return path.stat().st_size if path.exists() else 0


def last_lines(path: Path, count: int, *, begin: int = 0) -> list[str]:
    """Returns the last lines of a log without reading all of it; none from before the place where to begin."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(begin, size - 512 * max(count, 1)))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[-count:] if count else []
