"""`toolmesh call`: calls a tool, or previews the call."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.commands.follow import follow_and_print, how_to_approve, print_loaded
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.json_input import read_arguments
from toolmesh_sdk.cli.inputs.options import refuse_blank
from toolmesh_sdk.cli.inputs.target import Target, open_client, open_direct
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.inputs.tool_completion import complete_tool
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh_sdk.client import Client


class Route(StrEnum):
    """The route of a call."""

    EDGE = "edge"
    DIRECT = "direct"


@report_errors
@add_target_options()
def call(
    tool: Annotated[
        str,
        typer.Argument(metavar="TOOL", help="The tool, such as echo or acme.send_email.", autocompletion=complete_tool),
    ],
    arguments: Annotated[
        str, typer.Argument(metavar="ARGUMENTS_JSON", help="A JSON object, or - to read one from stdin.")
    ] = "",
    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="KEY=VALUE",
            help="One argument; repeatable. A value that parses as JSON is JSON (n=3, 'id=\"3\"'), any other is text.",
        ),
    ] = None,
    version: Annotated[
        str | None, typer.Option(callback=refuse_blank, help="The version: 1.2.3, latest, ^1.2, ~1.2, 1.x.")
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Show what the call would do, without doing it.")] = False,
    preview_token: Annotated[
        str, typer.Option(help="The token that --preview printed for this call.", show_default=False)
    ] = "",
    ticket: Annotated[str, typer.Option(help="The approved ticket of this call: tickets/...", show_default=False)] = "",
    key: Annotated[
        str | None,
        typer.Option(
            callback=refuse_blank,
            help="The idempotency key: a retry with the same key in the same --session has no second effect.",
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            callback=refuse_blank, help="Instead of --key: the step of --session; the key is derived from both."
        ),
    ] = None,
    key_secret: options.KeySecret = "",
    session: Annotated[str | None, typer.Option(callback=refuse_blank, help="The session of the call.")] = None,
    task: Annotated[
        str | None, typer.Option(callback=refuse_blank, help="The task of the call, which its cost is counted to.")
    ] = None,
    priority: Annotated[
        int, typer.Option(min=0, max=10, help="The priority in the queue, 1 to 10; 0 uses the tool's own.")
    ] = 0,
    digest: Annotated[
        str | None, typer.Option(callback=refuse_blank, help="The expected digest of the version; see `tools schema`.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Start the call and print its name; `toolmesh jobs` follows it.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show progress until the end; Ctrl-C leaves the call or cancels it.")
    ] = False,
    via: Annotated[Route, typer.Option(help="Through the edge, or directly to the local executor.")] = Route.EDGE,
    max_bytes: options.MaxBytes = options.SHOWN_BYTES,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Call a tool and print its result.

    A large result that the mesh stored is fetched up to --max-bytes. Remarks, such as the effects of the call and how
    to undo it, go to stderr.

    \b
    Examples:
      toolmesh call echo '{"text": "hello"}'
      toolmesh call acme.send_email --arg to=a@b.example --preview
      toolmesh call reports.build --arg month=2026-10 --key october --detach
      toolmesh call reports.build --arg month=2026-10 --follow
    """
    if detach + preview + follow > 1:
        raise typer.BadParameter("use one of --detach, --follow and --preview", param_hint="--detach")
    call_arguments = read_arguments(arguments, arg or [])
    check_step(step or "", key=key or "", session=session or "", key_secret=key_secret)
    pinned = {"version": version or "", "tool_digest": digest or ""}
    call_options = {**pinned, "session_id": session or "", "task_id": task or "", "priority": priority}
    connect = open_direct if via is Route.DIRECT else open_client
    with connect(target, key_secret) as client:
        if follow:
            call_options |= {"idempotency_key": key, "step": step, "preview_token": preview_token, "ticket": ticket}
            _follow_and_print(client, tool, call_arguments, call_options, max_bytes, as_json)
        elif detach:
            call_options |= {"idempotency_key": key, "step": step, "preview_token": preview_token, "ticket": ticket}
            _start_and_print(client, tool, call_arguments, call_options, as_json)
        elif preview:
            _preview_and_print(client, tool, call_arguments, call_options, as_json, key=key or "", step=step or "")
        else:
            call_options |= {"idempotency_key": key, "step": step, "preview_token": preview_token, "ticket": ticket}
            _call_and_print(client, tool, call_arguments, call_options, max_bytes, as_json)


def check_step(step: str, *, key: str, session: str, key_secret: str) -> None:
    """Refuse a step from which no reproducible key can be derived."""
    if not step:
        return
    if key:
        raise typer.BadParameter("use --step or --key, not both", param_hint="--step")
    if not session:
        raise typer.BadParameter("a step needs a session; add --session", param_hint="--step")
    if not key_secret:
        raise typer.BadParameter("a step's key needs a secret; set TOOLMESH_KEY_SECRET", param_hint="--step")


def _preview_and_print(
    client: Client, tool: str, arguments: dict[str, Any], options: dict[str, Any], as_json: bool, *, key: str, step: str
) -> None:
    from toolmesh_sdk.cli.views.preview import preview_document, print_preview

    preview = client.preview(tool, arguments, **options)
    if as_json:
        output.print_json(preview_document(preview))
    else:
        keyless = not key and not step and _requires_key(client, preview.tool_version)
        print_preview(preview, "KEY" if keyless else key)


def _requires_key(client: Client, version: str) -> bool:
    """Return whether calls of a version need a key; False if the caller may not read its manifest."""
    from toolmesh.registry.v1 import tool_manifest_pb2 as pb

    tool, _, number = version.removeprefix("tools/").partition("/versions/")
    try:
        manifest = client.resolve_tool(tool, number).manifest
    except ToolmeshError:
        return False
    unspecified = manifest.idempotency.mode == pb.IDEMPOTENCY_MODE_UNSPECIFIED
    writes = manifest.mutation_class != pb.MUTATION_CLASS_READ_ONLY
    return manifest.idempotency.mode == pb.IDEMPOTENCY_MODE_KEY_REQUIRED or (unspecified and writes)


def _start_and_print(
    client: Client, tool: str, arguments: dict[str, Any], options: dict[str, Any], as_json: bool
) -> None:
    job = client.start(tool, arguments, **options)
    name = job.name
    if as_json:
        output.print_json({"name": name, "ticket": job.ticket} if job.ticket else {"name": name})
    else:
        output.out().print(output.text(name))
        if job.ticket:
            output.err().print(output.text((how_to_approve(job.ticket), "yellow")))
        output.err().print(output.text((f"Follow it with: toolmesh jobs wait {name}", "dim")))


def _follow_and_print(
    client: Client, tool: str, arguments: dict[str, Any], options: dict[str, Any], max_bytes: int, as_json: bool
) -> None:
    follow_and_print(client, client.stream(tool, arguments, **options), max_bytes, as_json)


def _call_and_print(
    client: Client, tool: str, arguments: dict[str, Any], options: dict[str, Any], max_bytes: int, as_json: bool
) -> None:
    print_loaded(client, client.call(tool, arguments, **options), max_bytes, as_json)
