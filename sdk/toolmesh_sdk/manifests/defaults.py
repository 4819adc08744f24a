"""Completes a manifest document with the safe value of every field that has one. Pure.

A default never claims anything about the tool: what is left out is the value that allows the least. What only the
author knows has no default: the name, the description, the implementation, and the effects of a tool that writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = "0.2.0"
NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_KINDS = {"python": "function", "command": "shell_command", "http": "openapi_operation", "mcp": "mcp_tool"}
_PROTOCOLS = {"http": "openapi", "mcp": "mcp"}


@dataclass(frozen=True, slots=True)
class Default:
    """The value of a field that a document leaves out, in words for the reference."""

    path: str
    words: str


DEFAULTS: tuple[Default, ...] = (
    Default("schema_version", f"`{SCHEMA_VERSION}`"),
    Default("version", "`1.0.0`"),
    Default("title", "the tool id in words: `read_file` becomes `Read file`"),
    Default("provider", "the namespace"),
    Default("kind", "by runner: `function`, `shell_command`, `openapi_operation`, `mcp_tool`, else `custom`"),
    Default("protocol", "by runner: `openapi` for http, `mcp` for mcp, else `native`"),
    Default("input.schema", "no arguments"),
    Default("output.schema", "any object"),
    Default("execution.runner", "by implementation: `http` for `http`, `command` for a JSON array, else `python`"),
    Default("execution.timeout_class", "`standard`: 5 s"),
    Default("permission.required_scopes", "`tools:call`"),
    Default("mutation_class", "`write_irreversible`, the worst case"),
    Default("idempotency", "for a tool that writes: `key_required`, and an uncertain outcome is never repeated"),
    Default("observability.audit_detail", "`digest`"),
)


def complete(document: Any) -> Any:
    """Return the document with every default filled in. What is not an object is returned as it is."""
    if not isinstance(document, dict):
        return document
    filled = dict(document)
    _fill_header(filled)
    _fill_part(filled, "input", {"schema": dict(NO_ARGUMENTS)})
    _fill_part(filled, "output", {"schema": dict(ANY_OBJECT)})
    _fill_part(filled, "execution", {"timeout_class": "standard"})
    _fill_runner(filled)
    _fill_part(filled, "permission", {"required_scopes": ["tools:call"]})
    _fill_part(filled, "observability", {"audit_detail": "digest"})
    filled.setdefault("mutation_class", "write_irreversible")
    if filled["mutation_class"] != "read_only":
        _fill_part(filled, "idempotency", {"mode": "key_required", "uncertain_outcome": "fail"})
    return filled


def _fill_header(filled: dict[str, Any]) -> None:
    filled.setdefault("schema_version", SCHEMA_VERSION)
    filled.setdefault("version", "1.0.0")
    if isinstance(name := filled.get("tool_id"), str) and name:
        filled.setdefault("title", title_of(name))
    if isinstance(filled.get("namespace"), str):
        filled.setdefault("provider", filled["namespace"])


def title_of(tool_id: str) -> str:
    """Return the title of a tool without one: its id in words."""
    words = " ".join(tool_id.replace("-", "_").split("_")).strip()
    return (words[:1].upper() + words[1:]) or tool_id


def _fill_runner(filled: dict[str, Any]) -> None:
    execution = filled["execution"]
    if not isinstance(execution, dict):
        return
    if "http" in execution:
        execution.setdefault("runner", "http")
    elif isinstance(entry_point := execution.get("entry_point"), str):
        execution.setdefault("runner", "command" if entry_point.lstrip().startswith("[") else "python")
    runner = str(execution.get("runner"))
    filled.setdefault("kind", _KINDS.get(runner, "custom"))
    filled.setdefault("protocol", _PROTOCOLS.get(runner, "native"))


def _fill_part(filled: dict[str, Any], name: str, defaults: Mapping[str, Any]) -> None:
    part = filled.get(name, {})
    filled[name] = {**defaults, **part} if isinstance(part, dict) else part
