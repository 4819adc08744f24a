"""Packs and runners for tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from libs.common.ids import new_id
from services.executor.domain.run import RunRequest
from services.executor.domain.tool import Access, Confinement, Effect, Tool
from services.executor.tests.samples import a_tool

MIB = 1 << 20


def make_pack(folder: Path, name: str, files: Mapping[str, str], **described: Any) -> Path:
    """Write a pack and return its folder."""
    pack = folder / name
    pack.mkdir(parents=True)
    (pack / "pack.json").write_text(json.dumps({"name": name, **described}))
    for path, text in files.items():
        place = pack / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return pack


def confined(**changes: Any) -> Confinement:
    """What a small tool in a process sandbox may use."""
    fields: dict[str, Any] = {
        "tier": "process",
        "access": Access.PURE,
        "memory_bytes": 128 * MIB,
        "scratch_bytes": 8 * MIB,
        "processes": 16,
        **changes,
    }
    return Confinement(**fields)


def python_tool(entry_point: str, *, digest: str = "", **changes: Any) -> Tool:
    """A version of a tool whose function is in a pack. Tools of different entry points have different digests."""
    confinement = changes.pop("confinement", None) or confined()
    marked = digest or f"sha256:{entry_point}"
    fields = {"runner": "python", "entry_point": entry_point, "digest": marked, "confinement": confinement}
    return a_tool(**{**fields, "max_result_bytes": MIB, **changes})


def command_tool(*elements: str, **changes: Any) -> Tool:
    """A version of a tool that is a command."""
    return python_tool(json.dumps(elements), **{"runner": "command", **changes})


def work(tenant: str = "acme", *, seconds: float = 20.0, preview: bool = False, **arguments: Any) -> RunRequest:
    """A run with these arguments. Its time is generous: no test waits for it to pass."""
    return RunRequest(
        new_id(), arguments, seconds, tenant=tenant, subject="did:key:ada", idempotency_key="k1", preview=preview
    )


def a_change(resource: str, operation: str, before: str | None = None, after: str | None = None) -> Effect:
    """Return the observed change of a file's content; None stands for no file."""
    digests = (
        "" if text is None else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" for text in (before, after)
    )
    return Effect(resource, operation, True, *digests)
