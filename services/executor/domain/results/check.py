"""Checks a result against the tool's schema and the obligations of the decision."""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple

from libs.common.errors import MeshError, Violation
from libs.common.json.canonical import canonical, digest_bytes
from libs.common.json.jsonio import MAX_DEPTH, dump, parse
from libs.common.redaction.scanner import Scanner
from services.executor.domain import errors
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import PayloadDigest, RenderedResult, StoredResult
from services.executor.domain.payload_summary import summarize_payload
from services.executor.domain.results.obligations import apply_obligations
from services.executor.domain.results.rendering import render_result
from services.executor.domain.results.repeated_values import hide_in_result
from services.executor.domain.tool import Tool


class CheckedResult(NamedTuple):
    """A result as the caller may see it."""

    content: bytes
    """The result as JSON."""
    payload: PayloadDigest
    """The result as records show it."""
    rendered: RenderedResult
    value: Any
    large: bool
    """True if it is too large to be embedded. Its payload is then the digest of `content`."""


class VerifiedResult(NamedTuple):
    """A result that passed verification."""

    content: bytes
    """Empty where it is stored."""
    payload: PayloadDigest
    """The result as records show it."""
    rendered: RenderedResult
    stored: StoredResult | None = None


def check_result(invocation: Invocation, tool: Tool, value: Any, scanner: Scanner) -> CheckedResult:
    """Return a value as a result that the caller may see.

    Raises RESULT_INVALID when it violates the schema, SANITIZATION_FAILED when it cannot be redacted as demanded.
    """
    broken = tool.output.violations(value)
    if broken:
        raise errors.result_invalid(broken)
    value, invocation.changed = hide_in_result(value, tool.output.declared, scanner.known)
    if invocation.decision is not None and invocation.decision.obligations:
        # From here on only the redacted value exists: neither the record nor the claim holds more.
        bound = apply_obligations(value, invocation.decision.obligations, scanner)
        value, invocation.changed = bound.value, tuple(dict.fromkeys((*invocation.changed, *bound.changed)))
    return encode_result(tool, value, scanner)


def encode_result(tool: Tool, value: Any, scanner: Scanner) -> CheckedResult:
    """Encode a redacted value. Raises RESULT_INVALID if it has no JSON form or is nested too deeply."""
    try:
        content = dump(value)
        if content.count(b"{") + content.count(b"[") > MAX_DEPTH:
            # Only then can it be nested deeper than the parser allows.
            parse(content, max_bytes=len(content))
        large = len(content) > tool.max_result_bytes
        if large and b"null" in content:
            _refuse_non_finite(value)
        if large:
            payload = describe_stored(digest_bytes(content), len(content), tool)
        else:
            payload = summarize_payload(value, tool.output, tool, scanner)
    except MeshError as error:
        raise errors.result_invalid([Violation("", "json", error.message)]) from error
    rendered = render_result(tool.rendering, value, tool.output.declared, scanner)
    return CheckedResult(content, payload, rendered, value, large)


def describe_stored(digest: str, size: int, tool: Tool) -> PayloadDigest:
    """Return how records show a large result: digest and size. It is not canonicalized, which would take long."""
    return PayloadDigest(digest, canonical({"truncated": True, "size_bytes": size}) if tool.summarized else b"")


def _refuse_non_finite(value: Any) -> None:
    """Refuse NaN and Infinity, which are encoded as null. Small results are refused when they are canonicalized."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            pending.extend(current.values())
        elif isinstance(current, list):
            pending.extend(current)
        elif isinstance(current, float) and not isfinite(current):
            raise errors.result_invalid([Violation("", "json", "NaN and Infinity have no JSON form")])
