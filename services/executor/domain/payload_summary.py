"""Summarizes arguments and results for audit records."""

from __future__ import annotations

from typing import Any

from libs.common.json.canonical import canonical, digest_bytes
from libs.common.redaction.declared import Declared
from libs.common.redaction.scanner import Scanner
from services.executor.domain.model import PayloadDigest
from services.executor.domain.tool import Contract, Tool
from services.executor.domain.validation_cost import LIGHT_BYTES

SUMMARY_BYTES = 4096
# Twice the size of a summary: of a longer value, redaction would rarely leave little enough.
EXAMINED_BYTES = 2 * SUMMARY_BYTES


def summarize_payload(value: Any, contract: Contract, tool: Tool, scanner: Scanner) -> PayloadDigest:
    """Return the digest of a value and, where the tool wants it, a bounded summary without secrets."""
    form = canonical(value)
    summary = _summary(value, form, contract.declared, scanner) if tool.summarized else b""
    return PayloadDigest(digest_bytes(form), summary)


def scans_inline(form: bytes, tool: Tool, scanner: Scanner) -> bool:
    """Return whether the summary of JSON needs no scan, or a short one, so that it may be made on the event loop."""
    examined = tool.summarized and LIGHT_BYTES < len(form) <= EXAMINED_BYTES
    return not examined or not scanner.suspects(form.decode("utf-8", "replace"))


def _summary(value: Any, form: bytes, declared: Declared | None, scanner: Scanner) -> bytes:
    shown = form
    if len(form) <= EXAMINED_BYTES and (declared is not None or scanner.suspects(form.decode())):
        shown = canonical(scanner.value(value, declared).value)
    return shown if len(shown) <= SUMMARY_BYTES else canonical({"truncated": True, "size_bytes": len(shown)})
