"""`toolmesh call`: call a tool."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli import options, output
from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.place import Place, open_client, open_direct

if TYPE_CHECKING:
    from toolmesh_sdk.result import Result


class Way(StrEnum):
    """Which way a call takes."""

    EDGE = "edge"
    DIRECT = "direct"


@reported
def call(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool, such as echo or acme.send_email.")],
    arguments: Annotated[
        str, typer.Argument(metavar="ARGUMENTS_JSON", help="A JSON object, or - to read one from stdin.")
    ] = "",
    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="KEY=VALUE",
            help="One argument; repeatable. A value that reads as JSON is JSON (n=3, 'id=\"3\"'), any other is text.",
        ),
    ] = None,
    version: Annotated[str, typer.Option(help="Which version: 1.2.3, latest, ^1.2, ~1.2, 1.x.")] = "",
    key: Annotated[str, typer.Option(help="The idempotency key: the same key never repeats the effect.")] = "",
    session: Annotated[str, typer.Option(help="The session that the call belongs to.")] = "",
    digest: Annotated[str, typer.Option(help="The digest of the version that is meant; see `tools schema`.")] = "",
    via: Annotated[Way, typer.Option(help="Through the edge, or straight to the local executor.")] = Way.EDGE,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = "",
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Call a tool and print its result."""
    given = read_arguments(arguments, arg or [])
    place = Place(url=url, token=token, state=state, ca=ca)
    with open_direct(place, timeout) if via is Way.DIRECT else open_client(place, timeout) as client:
        result = client.call(
            tool, given, version=version, idempotency_key=key or None, session_id=session, tool_digest=digest
        )
    if as_json:
        output.print_json(result_document(result))
    else:
        output.print_content(result.content)
        _remark(result)


def read_arguments(text: str, pairs: list[str]) -> dict[str, Any]:
    """Return the arguments of a call: the JSON object, with each `key=value` set in it."""
    if text == options.STDIN:
        text = sys.stdin.read()
    given = _json_object(text) if text.strip() else {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or not name:
            raise typer.BadParameter(f"{pair} is not key=value", param_hint="--arg")
        given[name] = _json_or_text(value)
    return given


def result_document(result: Result) -> dict[str, Any]:
    """Return a result as JSON values."""
    notice = result.deprecation
    return {
        "content": result.content,
        "status": result.status,
        "invocation_id": result.invocation_id,
        "result_id": result.result_id,
        "tool_version": result.tool_version,
        "digest": result.digest,
        "replayed": result.replayed,
        "trace_id": result.trace_id,
        "duration_seconds": result.duration,
        "phases": dict(result.phases),
        "adjusted_arguments": list(result.adjusted_arguments),
        "adjusted_result": list(result.adjusted_result),
        "evidence_refs": list(result.evidence_refs),
        "persisted": [{"ref": part.ref, "size_bytes": part.size_bytes} for part in result.envelope.persisted],
        "deprecation": None
        if notice is None
        else {
            "sunset_time": notice.sunset_time.isoformat() if notice.sunset_time else None,
            "successor": notice.successor,
            "migration_guide_url": notice.migration_guide_url,
        },
    }


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
    except ValueError as error:
        raise typer.BadParameter(f"not valid JSON: {error}", param_hint="ARGUMENTS_JSON") from None
    if not isinstance(value, dict):
        raise typer.BadParameter('a JSON object is needed, such as \'{"text": "hello"}\'', param_hint="ARGUMENTS_JSON")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object has the same key twice")
    return value


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _remark(result: Result) -> None:
    """Say on stderr what the result itself does not: warnings always, the rest to a terminal."""
    console = output.err()
    if result.adjusted_result:
        places = ", ".join(pointer or "/" for pointer in result.adjusted_result)
        console.print(output.text((f"policy had this removed or cut: {places}", "yellow")))
    if result.deprecation is not None:
        successor = f"; use {result.deprecation.successor}" if result.deprecation.successor else ""
        console.print(output.text((f"deprecated: {result.tool_version} is about to end{successor}", "yellow")))
    for part in result.envelope.persisted:
        console.print(output.text((f"stored, not shown: {part.ref} ({part.size_bytes} bytes)", "yellow")))
    if console.is_terminal:
        replayed = " · replayed" if result.replayed else ""
        facts = f"{result.tool_version} · {result.duration * 1000:.1f} ms{replayed} · {result.invocation_id}"
        console.print(output.text((facts, "dim")))
