"""`toolmesh call`: call a tool, or ask what the call would do."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.exits import exit_code
from toolmesh_sdk.cli.failures import report, reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.bounds import said
from toolmesh_sdk.cli.inputs.json_input import read_arguments
from toolmesh_sdk.cli.inputs.target import Place, open_client, open_direct
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh_sdk.client import Client


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
    version: Annotated[
        str | None, typer.Option(callback=said, help="Which version: 1.2.3, latest, ^1.2, ~1.2, 1.x.")
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Say what the call would do, and do nothing.")] = False,
    preview_token: Annotated[
        str, typer.Option(help="Shows that this very call was previewed; --preview prints it.", show_default=False)
    ] = "",
    key: Annotated[
        str | None,
        typer.Option(
            callback=said,
            help="The idempotency key: in one --session (or with one token), it never repeats the effect.",
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            callback=said, help="Instead of --key: which step of --session this is; the key is derived from both."
        ),
    ] = None,
    key_secret: options.KeySecret = "",
    session: Annotated[str | None, typer.Option(callback=said, help="The session that the call belongs to.")] = None,
    priority: Annotated[
        int, typer.Option(min=0, max=10, help="How urgent, 1 to 10, beside calls that wait; 0 is the tool's own.")
    ] = 0,
    digest: Annotated[
        str | None, typer.Option(callback=said, help="The digest of the version that is meant; see `tools schema`.")
    ] = None,
    via: Annotated[Way, typer.Option(help="Through the edge, or straight to the local executor.")] = Way.EDGE,
    max_bytes: options.MaxBytes = options.SHOWN_BYTES,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Call a tool and print its result; with --preview, what the call would do.

    A result that the mesh stored because it is large is fetched up to --max-bytes. What else is worth knowing, such as changes that the
    call made or how to undo it, is on stderr.
    """
    given = read_arguments(arguments, arg or [])
    check_step(step or "", key=key or "", session=session or "", key_secret=key_secret)
    pinned = {"version": version or "", "tool_digest": digest or ""}
    asked = {**pinned, "session_id": session or "", "priority": priority}
    place = Place(url=url, token=token, state=state, ca=ca)
    opened = open_direct if via is Way.DIRECT else open_client
    with opened(place, timeout, key_secret) as client:
        if preview:
            _foretell(client, tool, given, asked, as_json, key=key or "", step=step or "")
        else:
            asked |= {"idempotency_key": key, "step": step, "preview_token": preview_token}
            _make(client, tool, given, asked, max_bytes, as_json)


def check_step(step: str, *, key: str, session: str, key_secret: str) -> None:
    """Refuse a step from which no key, or one that nobody would find again, can be derived."""
    if not step:
        return
    if key:
        raise typer.BadParameter("a call has a step or a key, not both", param_hint="--step")
    if not session:
        raise typer.BadParameter("a step is one of a session; name it with --session", param_hint="--step")
    if not key_secret:
        raise typer.BadParameter("a step's key needs a secret; set TOOLMESH_KEY_SECRET", param_hint="--step")


def _foretell(
    client: Client, tool: str, given: dict[str, Any], asked: dict[str, Any], as_json: bool, *, key: str, step: str
) -> None:
    from toolmesh_sdk.cli.views.preview import preview_document, print_preview

    found = client.preview(tool, given, **asked)
    if as_json:
        output.print_json(preview_document(found))
    else:
        keyless = not key and not step and _wants_key(client, found.tool_version)
        print_preview(found, "KEY" if keyless else key)


def _wants_key(client: Client, version: str) -> bool:
    """Say whether calls of a version must carry a key, as far as the caller may know."""
    from toolmesh.registry.v1 import tool_manifest_pb2 as pb

    tool, _, number = version.removeprefix("tools/").partition("/versions/")
    try:
        manifest = client.resolve_tool(tool, number).manifest
    except ToolmeshError:
        return False
    unsaid = manifest.idempotency.mode == pb.IDEMPOTENCY_MODE_UNSPECIFIED
    writes = manifest.mutation_class != pb.MUTATION_CLASS_READ_ONLY
    return manifest.idempotency.mode == pb.IDEMPOTENCY_MODE_KEY_REQUIRED or (unsaid and writes)


def _make(
    client: Client, tool: str, given: dict[str, Any], asked: dict[str, Any], max_bytes: int, as_json: bool
) -> None:
    from toolmesh_sdk.cli.views.results import print_result, result_document, whole_of

    whole = whole_of(client, client.call(tool, given, **asked), max_bytes)
    if as_json:
        output.print_json(result_document(whole))
    else:
        print_result(whole)
    if whole.error is not None:
        if not as_json:
            report(whole.error, as_json=False)
        raise typer.Exit(exit_code(whole.error))
