"""`toolmesh tools deprecate`, `remove`, `history` and the other lifecycle commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_admin, as_caller
from toolmesh_sdk.cli.inputs.options import refuse_blank
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.inputs.timestamps import parse_future_time, parse_seconds
from toolmesh_sdk.cli.inputs.tool_completion import complete_tool
from toolmesh_sdk.cli.tool_names import short_name, tool_or_version, version_name
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from toolmesh.registry.v1 import tool_version_pb2

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A tool such as acme.send_email, or a version such as echo@1.2.0.",
        autocompletion=complete_tool,
    ),
]
Version = Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The version, such as echo@1.2.0.")]
Reason = Annotated[str, typer.Option("--reason", "-r", help="The reason; recorded, and shown to refused callers.")]
Etag = Annotated[str | None, typer.Option(callback=refuse_blank, help="Only if the version still has this etag.")]

_NEEDS_REASON = {"SunsetVersion", "DisableTool", "QuarantineTool", "ReleaseTool", "MarkRequiresSetup"}


def add_to(app: typer.Typer) -> None:
    """Add the commands to a group."""
    app.command()(deprecate)
    app.command()(remove)
    app.command()(history)
    for name, rpc, text in (
        ("publish", "PublishVersion", "Publish a draft."),
        ("undeprecate", "UndeprecateVersion", "Withdraw a deprecation, even after the sunset."),
        ("sunset", "SunsetVersion", "End a deprecated version before its sunset date."),
        ("disable", "DisableTool", "Disable a tool or one version."),
        ("enable", "EnableTool", "Enable a tool or one version again."),
        ("quarantine", "QuarantineTool", "Block a suspicious tool or version at once."),
        ("release", "ReleaseTool", "End a quarantine."),
        (
            "needs-setup",
            "MarkRequiresSetup",
            "Block a version until its setup is complete.",
        ),
        ("setup-done", "CompleteSetup", "Mark the setup of a version as complete."),
        (
            "defer",
            "DeferVersion",
            "Hide a schema until it is requested. Calls then need --digest, which `tools schema` prints.",
        ),
        ("load", "LoadVersion", "Show the schema of a deferred version again."),
    ):
        reason = " --reason 'found wanting'" if rpc in _NEEDS_REASON else ""
        example = f"\b\nExample:\n  toolmesh tools {name} acme.pay@1.0.0{reason}"
        app.command(name, help=f"{text}\n\n{example}")(_lifecycle_command(rpc))


@report_errors
@add_target_options()
def deprecate(
    name: Version,
    reason: Reason,
    sunset: Annotated[str, typer.Option(help="The last day: a date, or a duration such as 30d.")] = "90d",
    successor: Annotated[str, typer.Option(help="The replacement, such as echo@2.0.0.")] = "",
    guide: Annotated[str, typer.Option(help="The URL of the migration guide.")] = "",
    grace: Annotated[str, typer.Option(help="The time from the sunset to the removal.")] = "30d",
    etag: Etag = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Deprecate a version. Repeat it to change the announcement.

    \b
    Example:
      toolmesh tools deprecate acme.pay@1.0.0 --successor acme.pay@2.0.0 --reason 'has a successor'
    """
    from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
    from toolmesh.registry.v1.lifecycle_service_pb2_grpc import LifecycleServiceStub

    from toolmesh_sdk._wire.times import to_timestamp

    request = pb.DeprecateVersionRequest(
        name=version_name(name),
        reason=reason,
        etag=etag or "",
        sunset_time=to_timestamp(parse_future_time(sunset, "--sunset")),
        grace_period=_duration(grace, "--grace"),
        successor=version_name(successor) if successor else "",
        migration_guide_url=guide,
    )
    with as_admin(target) as transport:
        stub = LifecycleServiceStub(transport.channel)
        _print_changed([transport.unary(stub.DeprecateVersion, request, None, repeatable=False).version], as_json)


@report_errors
@add_target_options()
def remove(
    name: Version,
    reason: Reason,
    force: Annotated[bool, typer.Option("--force", help="Ignore the grace period and recent calls.")] = False,
    etag: Etag = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Remove an ended version that is no longer called.

    Its name stays reserved. If it is still called, its grace period is extended and the exit code is 1.

    \b
    Example:
      toolmesh tools remove acme.pay@1.0.0 --reason 'replaced by 2.0.0'
    """
    from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
    from toolmesh.registry.v1.lifecycle_service_pb2_grpc import LifecycleServiceStub

    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict

    request = pb.RemoveVersionRequest(name=version_name(name), reason=reason, etag=etag or "", force=force)
    with as_admin(target) as transport:
        stub = LifecycleServiceStub(transport.channel)
        answer = transport.unary(stub.RemoveVersion, request, None, repeatable=False)
    if answer.WhichOneof("outcome") == "removed":
        _print_changed([answer.removed], as_json)
        return
    blocked = answer.blocked
    if as_json:
        output.print_json({"blocked": message_to_dict(blocked)})
    else:
        until = format_time(blocked.version.deprecation.remove_time)
        output.err().print(
            output.text(
                f"{short_name(blocked.version.name)} is still called ({blocked.calls} recent calls) "
                f"and stays until {until}."
            )
        )
    raise typer.Exit(1)


@report_errors
@add_target_options()
def history(
    name: Name,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="The number of changes to show.")] = 50,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show the state changes of a tool or version.

    Newest first, with time, actor and reason.

    \b
    Example:
      toolmesh tools history acme.pay -n 10
    """
    from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
    from toolmesh.registry.v1.lifecycle_service_pb2_grpc import LifecycleServiceStub

    from toolmesh_sdk.cli.views.documents import message_to_dict

    transitions: list[pb.Transition] = []
    request = pb.ListTransitionsRequest(name=tool_or_version(name), page_size=min(number, 1000))
    with as_caller(target) as transport:
        stub = LifecycleServiceStub(transport.channel)
        while len(transitions) < number:
            page = transport.unary(stub.ListTransitions, request, None, repeatable=True)
            transitions.extend(page.transitions)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
    if as_json:
        output.print_json({"transitions": [message_to_dict(each) for each in transitions[:number]]})
    else:
        headings = ("WHEN", "VERSION", "WHAT", "FROM", "TO", "WHO", "WHY")
        output.print_table(headings, [_row(each) for each in transitions[:number]])


def _lifecycle_command(rpc: str) -> Callable[..., None]:
    """Return the command of an RPC that takes only a name, a reason and an etag."""

    @report_errors
    @add_target_options()
    def run(name: Name, reason: Reason = "", etag: Etag = None, *, target: Target, as_json: bool) -> None:
        from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
        from toolmesh.registry.v1.lifecycle_service_pb2_grpc import LifecycleServiceStub

        if rpc in _NEEDS_REASON and not reason:
            raise typer.BadParameter("a reason is required", param_hint="--reason")
        resource = tool_or_version(name) if rpc.endswith("Tool") else version_name(name)
        request = getattr(pb, f"{rpc}Request")(name=resource, reason=reason, etag=etag or "")
        with as_admin(target) as transport:
            method = getattr(LifecycleServiceStub(transport.channel), rpc)
            answer: Any = transport.unary(method, request, None, repeatable=False)
        _print_changed(answer.versions if rpc.endswith("Tool") else [answer.version], as_json)

    return run


def _print_changed(versions: Sequence[tool_version_pb2.ToolVersion], as_json: bool) -> None:
    from toolmesh.registry.v1 import tool_version_pb2

    from toolmesh_sdk.cli.views.documents import enum_label, format_time, message_to_dict

    if as_json:
        output.print_json({"versions": [message_to_dict(each) for each in versions]})
        return
    for each in versions:
        parts = [f"{short_name(each.name)} is {enum_label(tool_version_pb2.LifecycleState.DESCRIPTOR, each.state)}"]
        if each.state == tool_version_pb2.LIFECYCLE_STATE_DEPRECATED:
            parts.append(f"until {format_time(each.deprecation.sunset_time)}")
        if each.state == tool_version_pb2.LIFECYCLE_STATE_SUNSET:
            parts.append(f"removable from {format_time(each.deprecation.remove_time)}")
        if each.deprecation.successor:
            parts.append(f"use {short_name(each.deprecation.successor)}")
        output.out().print(output.text(", ".join(parts), (f"  etag {each.etag}", "dim")))


def _row(transition: Any) -> tuple[str, ...]:
    from toolmesh.registry.v1 import tool_version_pb2

    from toolmesh_sdk.cli.views.documents import enum_label, format_time

    states = tool_version_pb2.LifecycleState.DESCRIPTOR
    return (
        format_time(transition.time),
        short_name(transition.version),
        transition.verb.replace("_", " "),
        enum_label(states, transition.from_state),
        enum_label(states, transition.to_state),
        transition.actor,
        transition.reason,
    )


def _duration(text: str, option: str) -> Duration:
    from google.protobuf.duration_pb2 import Duration

    return Duration(seconds=parse_seconds(text, option))
