"""Forges lines of an export."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolmesh_sdk.audit.format.events import RecordLocation, attributes_of
from toolmesh_sdk.audit.format.manifest import read_manifest

from sdk.tests.audit_sample import (
    LOG,
    leaf_of,
    payload_of,
)

Change = Callable[[list[bytes]], list[bytes]]


def forged(sequence: int, form: dict[str, Any], shard: int = 0) -> bytes:
    """Return a line that is right in itself."""
    payload = payload_of(form)
    head = attributes_of(RecordLocation(LOG, shard, sequence), leaf_of(payload), form)
    return json.dumps({**head, "data": form}, ensure_ascii=False).encode()


def renumbered(lines: list[bytes], first: int = 0) -> list[bytes]:
    """Give the lines the attributes of the places that they stand at now."""
    return [forged(first + place, json.loads(line)["data"]) for place, line in enumerate(lines)]


def all_lines(folder: Path, change: Change) -> None:
    """Change the lines of all files as if they were one, into the first; the others become empty."""
    names = read_manifest(folder).record_files
    lines = [line for name in names for line in (folder / name).read_bytes().splitlines()]
    for name in names:
        (folder / name).write_bytes(b"")
    (folder / names[0]).write_bytes(b"".join(line + b"\n" for line in change(lines)))


def swapped(lines: list[bytes], one: int, other: int) -> list[bytes]:
    lines[one], lines[other] = lines[other], lines[one]
    return lines
