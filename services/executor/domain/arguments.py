"""Arguments: parsed strictly, completed from the schema, and held to it."""

from __future__ import annotations

import copy
from typing import Any

from libs.common.canonical import canonical, digest_bytes
from libs.common.jsonio import dump, parse_object
from services.executor.domain.errors import arguments_invalid
from services.executor.domain.model import Contract, Payload, Tool

SUMMARY_BYTES = 4096


def prepare(tool: Tool, payload: bytes) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arguments that the tool receives and the pointers of those that the mesh filled in.

    Raises INVALID_JSON or PAYLOAD_TOO_LARGE for what is not the JSON of the contract, and ARGUMENTS_INVALID with every
    violation for what breaks the tool's schema.
    """
    arguments = parse_object(payload)
    adjusted = _complete(tool, arguments)
    broken = tool.input.violations(arguments)
    if broken:
        raise arguments_invalid(broken)
    return arguments, adjusted


def describe(value: Any, contract: Contract, tool: Tool) -> Payload:
    """Return how evidence shows a value: its digest, and where the tool wants it a bounded summary without secrets."""
    form = canonical(value)
    if not tool.summarized:
        return Payload(digest_bytes(form))
    shown = form if contract.redactor is None else canonical(contract.redactor.redact(value))
    if len(shown) > SUMMARY_BYTES:
        shown = dump({"truncated": True, "size_bytes": len(shown)})
    return Payload(digest_bytes(form), shown)


def _complete(tool: Tool, arguments: dict[str, Any]) -> tuple[str, ...]:
    if not tool.defaults:
        return ()
    missing = [default for default in tool.defaults if default.argument not in arguments]
    for default in missing:
        # A copy, because a runner may change what it receives.
        arguments[default.argument] = copy.deepcopy(default.value)
    return tuple(default.pointer for default in missing)
