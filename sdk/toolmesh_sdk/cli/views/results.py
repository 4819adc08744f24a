"""Renders results: the content on stdout, remarks about it on stderr."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from toolmesh_sdk.cli.tool_names import short_name
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from datetime import datetime

    from toolmesh_sdk._wire.envelope import Compensation, Deprecation, Effect, StoredResult
    from toolmesh_sdk.client import Client
    from toolmesh_sdk.result import Result

# `sha256:` and as many digits as suffice to compare by eye.
_SHORT_DIGEST = len("sha256:") + 12


class LoadedResult(NamedTuple):
    """A result and its content; `available` is False if stored content is too large or could not be fetched."""

    result: Result
    content: Any = None
    available: bool = True
    error: ToolmeshError | None = None


def load_content(client: Client, result: Result, limit: int) -> LoadedResult:
    """Return a result with its content; stored content is fetched up to the limit."""
    stored = result.stored
    if result.raw or stored is None:
        return LoadedResult(result, result.content)
    if stored.size > limit:
        return LoadedResult(result, available=False)
    try:
        return LoadedResult(result, client.content(result, max_bytes=limit))
    except ToolmeshError as error:
        return LoadedResult(result, available=False, error=error)


def print_result(loaded: LoadedResult) -> None:
    """Print the content and the remarks. If the content is not available, a remark shows how to fetch it."""
    if loaded.available:
        output.print_content(loaded.content)
    _print_remarks(loaded)


def result_document(loaded: LoadedResult) -> dict[str, Any]:
    """Return a result as a JSON object."""
    result = loaded.result
    notice, undo = result.deprecation, result.compensation
    fields = {
        "content": loaded.content,
        "status": result.status,
        "source": result.source,
        "invocation_id": result.invocation_id,
        "result_id": result.result_id,
        "tool_version": result.tool_version,
        "digest": result.digest,
        "replayed": result.replayed,
        "trace_id": result.trace_id,
        "duration_seconds": result.duration,
        "phases": dict(result.phases),
        "costs": [asdict(cost) for cost in result.costs],
        "adjusted_arguments": list(result.adjusted_arguments),
        "argument_changes": [asdict(change) for change in result.argument_changes],
        "adjusted_result": list(result.adjusted_result),
        "additional_context": list(result.additional_context),
        "effects": [asdict(effect) for effect in result.effects],
        "declared_effects": [asdict(effect) for effect in result.declared_effects],
        "compensation": None if undo is None else asdict(undo),
        "shown": asdict(result.shown),
        "evidence_refs": list(result.evidence_refs),
        "persisted": [_stored_document(part) for part in _stored_parts(result)],
        "warnings": [asdict(warning) for warning in result.warnings],
        "deprecation": None
        if notice is None
        else {
            "sunset_time": isoformat_or_none(notice.sunset_time),
            "successor": notice.successor,
            "migration_guide_url": notice.migration_guide_url,
        },
    }
    return fields if loaded.error is None else {**fields, "error": loaded.error.to_dict()}


def isoformat_or_none(moment: datetime | None) -> str | None:
    """Return a time in ISO 8601; None if it is unset."""
    return None if moment is None else moment.isoformat()


def _stored_parts(result: Result) -> list[StoredResult]:
    from toolmesh_sdk._wire.envelope import parse_stored_result

    return [parse_stored_result(part) for part in result.envelope.persisted]


def _stored_document(part: StoredResult) -> dict[str, Any]:
    return {
        "ref": part.ref,
        "size_bytes": part.size,
        "digest": part.digest,
        "media_type": part.media_type,
        "expire_time": isoformat_or_none(part.expires),
        "access_token": part.access_token,
    }


def _print_remarks(loaded: LoadedResult) -> None:
    """Print remarks on stderr: important ones always, metadata only to a terminal."""
    result, console = loaded.result, output.err()
    for line in (*_changes(result), *(f"context: {each}" for each in result.additional_context)):
        console.print(output.text(line))
    if result.adjusted_result:
        paths = ", ".join(pointer or "/" for pointer in result.adjusted_result)
        console.print(output.text((f"removed or truncated by policy: {paths}", "yellow")))
    if result.source == "stale_cache":
        read = result.envelope.provenance.retrieve_time.ToJsonString()
        console.print(output.text((f"stale: read at {read}; the service does not answer now", "yellow")))
    if result.deprecation is not None:
        console.print(output.text((_describe_deprecation(result.tool_version, result.deprecation), "yellow")))
    for warning in result.warnings:
        console.print(output.text((f"warning: {warning.message}", "yellow")))
    fetched = loaded.available and not result.raw
    for part in _stored_parts(result)[1 if fetched else 0 :]:
        console.print(output.text((f"stored, not shown: {part.ref} ({part.size} bytes). To get it:", "yellow")))
        console.print(output.text(f"  {_fetch_command(part)}"))
    if console.is_terminal:
        _print_metadata(result)


def _describe_deprecation(version: str, notice: Deprecation) -> str:
    ends = f"ends on {notice.sunset_time:%Y-%m-%d}" if notice.sunset_time else "ends soon"
    successor = f"; use {notice.successor}" if notice.successor else ""
    guide = f"; migration guide: {notice.migration_guide_url}" if notice.migration_guide_url else ""
    return f"deprecated: {version} {ends}{successor}{guide}"


def _changes(result: Result) -> list[str]:
    effects = [f"changed: {describe_effect(each)}" for each in result.effects]
    # Filled-in defaults are expected; other changes of arguments are reported.
    arguments = [
        f"argument {each.path or '/'} was changed: {each.source}" + (f", {each.reason}" if each.reason else "")
        for each in result.argument_changes
        if each.source != "default"
    ]
    undo = result.compensation
    undone = [] if undo is None else [f"to undo it: {_undo_command(undo, result.invocation_id)}"]
    return [*arguments, *effects, *undone]


def describe_effect(effect: Effect) -> str:
    """Return an effect in one line: operation, resource, source, and the change of its content where it is known."""
    change = format_change(effect.digest_before, effect.digest_after)
    return f"{effect.operation} {effect.resource} ({effect.source})" + (f" {change}" if change else "")


def format_change(before: str, after: str) -> str:
    """Return the change from one digest to another, each shortened; empty if neither is known."""
    return f"{_short_digest(before)} -> {_short_digest(after)}" if before or after else ""


def _short_digest(digest: str) -> str:
    return digest[:_SHORT_DIGEST] or "nothing"


def _undo_command(undo: Compensation, invocation_id: str) -> str:
    arguments = [] if undo.arguments is None else [json.dumps(undo.arguments, ensure_ascii=False)]
    # A compensation usually needs a key; this one makes sure that a call is undone once.
    return shlex.join(["toolmesh", "call", short_name(undo.tool), *arguments, "--key", f"undo-{invocation_id}"])


def _fetch_command(part: StoredResult) -> str:
    return shlex.join(["toolmesh", "result", part.ref, "--access-token", part.access_token, "--output", "FILE"])


def _print_metadata(result: Result) -> None:
    console = output.err()
    if result.shown.person:
        console.print(output.text(result.shown.person))
    costs = [f"{cost.amount_micros / 1e6:g} {cost.currency} {cost.category}" for cost in result.costs]
    origin = [] if result.source in ("computed", "unspecified") else [result.source]
    metadata = [result.tool_version, f"{result.duration * 1000:.1f} ms", *origin, *costs, result.invocation_id]
    console.print(output.text((" · ".join(metadata), "dim")))
