"""Verify: the result keeps the tool's contract, and holds no more than this caller may see."""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple

from libs.common.errors import MeshError, Violation
from libs.common.json.canonical import canonical, digest_bytes
from libs.common.json.jsonio import MAX_DEPTH, dump, parse
from libs.common.redaction.scanner import Scanner
from services.executor.domain import errors
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Payload, Shown, Stored
from services.executor.domain.payload_summary import describe
from services.executor.domain.results.obligations import fulfil
from services.executor.domain.results.rendering import presented
from services.executor.domain.tool import Tool


class Examined(NamedTuple):
    """A result as the caller may see it: its JSON, how the evidence shows it, and how its readers do."""

    content: bytes
    shown: Payload
    presented: Shown
    value: Any
    large: bool
    """True if it is too large to be embedded. Its evidence is then the digest of these very bytes, which is also the reference's."""


class Answer(NamedTuple):
    """What a call may be answered with."""

    content: bytes
    """Empty where it is stored."""
    shown: Payload
    """How the evidence shows it."""
    presented: Shown
    stored: Stored | None = None


def examined(invocation: Invocation, tool: Tool, value: Any, scanner: Scanner) -> Examined:
    """Return a result that may be answered, or stored where it is too large for that. Raises RESULT_INVALID when it breaks its contract and
    SANITIZATION_FAILED when it cannot be redacted as demanded: then it never reaches the caller."""
    broken = tool.output.violations(value)
    if broken:
        raise errors.result_invalid(broken)
    if invocation.decision is not None and invocation.decision.obligations:
        # From here on there is only what the caller may see: the evidence and a key's memory hold no more.
        fulfilled = fulfil(value, invocation.decision.obligations, scanner)
        value, invocation.changed = fulfilled.value, fulfilled.changed
    return as_seen(tool, value, scanner)


def as_seen(tool: Tool, value: Any, scanner: Scanner) -> Examined:
    """Return a value that its caller may see. Raises RESULT_INVALID for what has no JSON form, or is nested too deeply."""
    try:
        content = dump(value)
        if content.count(b"{") + content.count(b"[") > MAX_DEPTH:
            # Only then can it be nested too deeply for a reader that is as strict as this mesh.
            parse(content, max_bytes=len(content))
        large = len(content) > tool.max_result_bytes
        if large and b"null" in content:
            _refuse_unwritten(value)
        shown = measured(content, tool) if large else describe(value, tool.output, tool, scanner)
    except MeshError as error:
        raise errors.result_invalid([Violation("", "json", error.message)]) from error
    return Examined(content, shown, presented(tool.rendering, value, tool.output.declared, scanner), value, large)


def measured(content: bytes, tool: Tool) -> Payload:
    """Return what evidence shows of a large result: its digest and its size. It is not brought into canonical form, which would take long."""
    return measured_as(digest_bytes(content), len(content), tool)


def measured_as(digest: str, size: int, tool: Tool) -> Payload:
    """Return what evidence shows of a large result that is not at hand."""
    return Payload(digest, canonical({"truncated": True, "size_bytes": size}) if tool.summarized else b"")


def _refuse_unwritten(value: Any) -> None:
    """Refuse NaN and Infinity, which are written as null. Whatever is not large is refused when it is brought into canonical form."""
    waiting = [value]
    while waiting:
        present = waiting.pop()
        if isinstance(present, dict):
            waiting.extend(present.values())
        elif isinstance(present, list):
            waiting.extend(present)
        elif isinstance(present, float) and not isfinite(present):
            raise errors.result_invalid([Violation("", "json", "NaN and Infinity have no JSON form")])
