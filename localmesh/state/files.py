"""Writes files atomically, and rotates logs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

ROTATE_BYTES = 20 * 1024 * 1024
CHUNK_BYTES = 64 * 1024


def write_private(path: Path, content: bytes) -> None:
    """Replaces the file atomically; only its owner can read it, and its folder if that is new."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def write_json(path: Path, document: Any) -> None:
    """Replaces the file with the document, atomically and readable by its owner only."""
    write_private(path, json.dumps(document, indent=2).encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in the file; empty when it is missing or malformed."""
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def rotate(path: Path) -> None:
    """Moves a log that has grown past the limit aside, over the one moved before."""
    if size_of(path) > ROTATE_BYTES:
        path.replace(_aside(path))


def rotate_in_use(path: Path) -> None:
    """Rotates a log that stays open: copies its content, then truncates it. A line written between the two is lost."""
    if size_of(path) > ROTATE_BYTES:
        # First, because the disk may have no room for three.
        _aside(path).unlink(missing_ok=True)
        descriptor = os.open(_aside(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with path.open("rb") as log, os.fdopen(descriptor, "wb") as copy:
            shutil.copyfileobj(log, copy, CHUNK_BYTES)
        os.truncate(path, 0)


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def size_of(path: Path) -> int:
    """Returns the file's size; 0 if it is missing."""
    return path.stat().st_size if path.exists() else 0


def last_lines(path: Path, count: int, *, begin: int = 0) -> list[str]:
    """Returns the last lines of a log without reading all of it; none from before `start`."""
    text = b""
    try:
        with path.open("rb") as file:
            place = file.seek(0, os.SEEK_END)
            # One end of a line more than there are lines to show: only then is the first of them whole.
            while count and place > begin and text.count(b"\n") <= count:
                size = min(CHUNK_BYTES, place - begin)
                place = file.seek(place - size)
                text = file.read(size) + text
    except FileNotFoundError:
        return []
    return text.decode(errors="replace").splitlines()[-count:] if count else []
