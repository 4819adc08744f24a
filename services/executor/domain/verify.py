"""Verify: the result keeps the tool's contract, and holds no more than this caller may see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from libs.common.errors import MeshError, Violation
from libs.common.jsonio import MAX_DEPTH, dump, parse
from libs.common.redaction.scanner import Scanner
from services.executor.domain import errors
from services.executor.domain.arguments import describe
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Payload, Result, Tool
from services.executor.domain.obligations import fulfil


def verified(invocation: Invocation, tool: Tool, value: Any, scanner: Scanner) -> tuple[bytes, Payload]:
    """Return a result as the caller receives it and as the evidence shows it. Raises RESULT_INVALID or RESULT_TOO_LARGE: then it
    never reaches the caller as a success."""
    broken = tool.output.violations(value)
    if broken:
        raise errors.result_invalid(broken)
    if invocation.decision is not None and invocation.decision.obligations:
        # From here on there is only what the caller may see: the evidence and a key's memory hold no more.
        fulfilled = fulfil(value, invocation.decision.obligations)
        value, invocation.changed = fulfilled.value, fulfilled.changed
    try:
        content, shown = dump(value), describe(value, tool.output, tool, scanner)
        if content.count(b"{") + content.count(b"[") > MAX_DEPTH:
            # Only then can it be nested too deeply for a reader that is as strict as this mesh.
            parse(content)
    except MeshError as error:
        raise errors.result_invalid([Violation("", "json", error.message)]) from error
    if len(content) > tool.max_result_bytes:
        raise errors.result_too_large(len(content), tool.max_result_bytes)
    return content, shown


def for_this_caller(first: Result, invocation: Invocation) -> Result:
    """The first call's result under what binds this one: policy may have changed since."""
    obligations = invocation.decision.obligations if invocation.decision else ()
    if not obligations:
        return first
    fulfilled = fulfil(parse(first.content), obligations)
    changed = tuple(dict.fromkeys((*first.changed, *fulfilled.changed)))
    return replace(first, content=dump(fulfilled.value), changed=changed)
