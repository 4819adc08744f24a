"""Results as commands show them: the content whole on stdout, what is worth knowing beside it on stderr."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from toolmesh_sdk.cli.inputs.admin_connection import short
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from datetime import datetime

    from toolmesh_sdk._wire.envelope import Compensation, Deprecation, Stored
    from toolmesh_sdk.client import Client
    from toolmesh_sdk.result import Result


class Whole(NamedTuple):
    """A result and its content, as far as that could be had: not if it is stored and larger than wanted, nor if fetching it failed."""

    result: Result
    content: Any = None
    here: bool = True
    error: ToolmeshError | None = None


def whole_of(client: Client, result: Result, limit: int) -> Whole:
    """Return a result with its content, fetched where it is stored and no larger than the limit."""
    stored = result.stored
    if result.raw or stored is None:
        return Whole(result, result.content)
    if stored.size > limit:
        return Whole(result, here=False)
    try:
        return Whole(result, client.content(result, max_bytes=limit))
    except ToolmeshError as error:
        return Whole(result, here=False, error=error)


def print_result(whole: Whole) -> None:
    """Print the content and the remarks on it. Where the content is not here, stdout stays empty and the remark says how to get it."""
    if whole.here:
        output.print_content(whole.content)
    _remark(whole)


def result_document(whole: Whole) -> dict[str, Any]:
    """Return a result as JSON values."""
    result = whole.result
    notice, undo = result.deprecation, result.compensation
    said = {
        "content": whole.content,
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
        "compensation": None if undo is None else asdict(undo),
        "shown": asdict(result.shown),
        "evidence_refs": list(result.evidence_refs),
        "persisted": [_stored_document(part) for part in _stored(result)],
        "deprecation": None
        if notice is None
        else {
            "sunset_time": iso(notice.sunset_time),
            "successor": notice.successor,
            "migration_guide_url": notice.migration_guide_url,
        },
    }
    return said if whole.error is None else {**said, "error": whole.error.to_dict()}


def iso(moment: datetime | None) -> str | None:
    """Return a time as machines read it; None where it was never set."""
    return None if moment is None else moment.isoformat()


def _stored(result: Result) -> list[Stored]:
    from toolmesh_sdk._wire.envelope import stored_of

    return [stored_of(part) for part in result.envelope.persisted]


def _stored_document(part: Stored) -> dict[str, Any]:
    return {
        "ref": part.ref,
        "size_bytes": part.size,
        "digest": part.digest,
        "media_type": part.media_type,
        "expire_time": iso(part.expires),
        "access_token": part.access_token,
    }


def _remark(whole: Whole) -> None:
    """Say on stderr what the result itself does not: what matters always, the rest to a terminal."""
    result, console = whole.result, output.err()
    for words in (*_changes(result), *(f"context: {each}" for each in result.additional_context)):
        console.print(output.text(words))
    if result.adjusted_result:
        places = ", ".join(pointer or "/" for pointer in result.adjusted_result)
        console.print(output.text((f"policy had this removed or cut: {places}", "yellow")))
    if result.deprecation is not None:
        console.print(output.text((_ending(result.tool_version, result.deprecation), "yellow")))
    fetched = whole.here and not result.raw
    for part in _stored(result)[1 if fetched else 0 :]:
        console.print(output.text((f"stored, not shown: {part.ref} ({part.size} bytes). To get it:", "yellow")))
        console.print(output.text(f"  {_fetch_command(part)}"))
    if console.is_terminal:
        _facts(result)


def _ending(version: str, notice: Deprecation) -> str:
    ends = f"ends on {notice.sunset_time:%Y-%m-%d}" if notice.sunset_time else "is about to end"
    successor = f"; use {notice.successor}" if notice.successor else ""
    guide = f"; how to move: {notice.migration_guide_url}" if notice.migration_guide_url else ""
    return f"deprecated: {version} {ends}{successor}{guide}"


def _changes(result: Result) -> list[str]:
    effects = [f"changed: {each.operation} {each.resource} ({each.source})" for each in result.effects]
    # A default that was filled in is what everybody expects; whatever else changed an argument is news.
    arguments = [
        f"argument {each.path or '/'} was changed: {each.source}" + (f", {each.reason}" if each.reason else "")
        for each in result.argument_changes
        if each.source != "default"
    ]
    undo = result.compensation
    undone = [] if undo is None else [f"to undo it: {_undo_command(undo, result.invocation_id)}"]
    return [*arguments, *effects, *undone]


def _undo_command(undo: Compensation, invocation_id: str) -> str:
    given = [] if undo.arguments is None else [json.dumps(undo.arguments, ensure_ascii=False)]
    # What undoes a change is a change itself, and mostly asks for a key; one call is undone once.
    return shlex.join(["toolmesh", "call", short(undo.tool), *given, "--key", f"undo-{invocation_id}"])


def _fetch_command(part: Stored) -> str:
    return shlex.join(["toolmesh", "result", part.ref, "--access-token", part.access_token, "--output", "FILE"])


def _facts(result: Result) -> None:
    console = output.err()
    if result.shown.person:
        console.print(output.text(result.shown.person))
    costs = [f"{cost.amount_micros / 1e6:g} {cost.currency} {cost.category}" for cost in result.costs]
    origin = [] if result.source in ("computed", "unspecified") else [result.source]
    facts = [result.tool_version, f"{result.duration * 1000:.1f} ms", *origin, *costs, result.invocation_id]
    console.print(output.text((" · ".join(facts), "dim")))
