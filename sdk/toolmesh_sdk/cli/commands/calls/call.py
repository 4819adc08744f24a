"""`toolmesh call`: calls a tool, or previews the call."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.commands.calls.debug import debug_failure, print_debug
from toolmesh_sdk.cli.commands.calls.follow import follow_and_print, how_to_approve, print_loaded
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs import call_options, options
from toolmesh_sdk.cli.inputs.json_input import read_arguments
from toolmesh_sdk.cli.inputs.target import Target, open_client, open_direct
from toolmesh_sdk.cli.inputs.target_options import add_target_options
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
    tool: call_options.Tool,
    arguments: call_options.ArgumentsJson = "",
    arg: call_options.Argument = None,
    version: call_options.Version = None,
    preview: call_options.Preview = False,
    preview_token: call_options.PreviewToken = "",
    ticket: call_options.Ticket = "",
    key: call_options.Key = None,
    step: call_options.Step = None,
    key_secret: options.KeySecret = "",
    session: call_options.Session = None,
    task: call_options.Task = None,
    priority: call_options.Priority = 0,
    digest: call_options.Digest = None,
    detach: call_options.Detach = False,
    follow: call_options.Follow = False,
    debug: call_options.Debug = False,
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
      toolmesh call acme.resize --arg width=0 --debug
    """
    if detach + preview + follow + debug > 1:
        raise typer.BadParameter("use one of --detach, --follow, --preview and --debug", param_hint="--detach")
    call_arguments = read_arguments(arguments, arg or [])
    call_options.check_step(step, key=key, session=session, key_secret=key_secret)
    pinned = {"version": version or "", "tool_digest": digest or ""}
    planned: dict[str, Any] = {**pinned, "session_id": session or "", "task_id": task or "", "priority": priority}
    identified: dict[str, Any] = {
        "idempotency_key": key,
        "step": step,
        "preview_token": preview_token,
        "ticket": ticket,
    }
    connect = open_direct if via is Route.DIRECT else open_client
    with connect(target, key_secret) as client:
        if preview:
            _preview_and_print(client, tool, call_arguments, planned, as_json, key=key or "", step=step or "")
        elif detach:
            _start_and_print(client, tool, call_arguments, planned | identified, as_json)
        elif follow:
            stream = client.stream(tool, call_arguments, **planned, **identified)
            follow_and_print(client, stream, max_bytes, as_json)
        elif debug:
            with debug_failure(client):
                result = client.call(tool, call_arguments, **planned, **identified)
            print_loaded(client, result, max_bytes, as_json)
            print_debug(client, result.invocation_id)
        else:
            print_loaded(client, client.call(tool, call_arguments, **planned, **identified), max_bytes, as_json)


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
