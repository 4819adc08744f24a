"""`toolmesh tools deprecate` and its siblings: moving versions through their life, and reading how they got there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.admin_connection import as_caller, as_steward, short, tool_or_version, version_name
from toolmesh_sdk.cli.inputs.bounds import said
from toolmesh_sdk.cli.inputs.claims import seconds_of
from toolmesh_sdk.cli.inputs.target import Place
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp
    from toolmesh.registry.v1 import tool_version_pb2

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A tool such as acme.send_email, or a version as echo@1.2.0.")
]
Version = Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The version, such as echo@1.2.0.")]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why, for people; recorded, and shown to who is refused.")]
Etag = Annotated[str | None, typer.Option(callback=said, help="Only if the version is still the one with this etag.")]

_NEEDS_REASON = {"SunsetVersion", "DisableTool", "QuarantineTool", "ReleaseTool", "MarkRequiresSetup"}


def add_to(app: typer.Typer) -> None:
    """Add the commands to a group."""
    app.command()(deprecate)
    app.command()(remove)
    app.command()(history)
    for name, rpc, text in (
        ("publish", "PublishVersion", "Publish a draft."),
        ("undeprecate", "UndeprecateVersion", "Take a deprecation back, also after the sunset."),
        ("sunset", "SunsetVersion", "End a deprecated version now, before its date."),
        ("disable", "DisableTool", "Switch a tool or one version off."),
        ("enable", "EnableTool", "Switch a tool or one version on again."),
        ("quarantine", "QuarantineTool", "Take a tool or one version out of use at once, on suspicion."),
        ("release", "ReleaseTool", "End a quarantine."),
        (
            "needs-setup",
            "MarkRequiresSetup",
            "Take a version out of use until its credentials, or whatever it needs, are there.",
        ),
        ("setup-done", "CompleteSetup", "Say that what a version waited for, such as its credentials, is there."),
        (
            "defer",
            "DeferVersion",
            "Hide the schema of a version until it is asked for; calls then need --digest, which `tools schema` shows.",
        ),
        ("load", "LoadVersion", "Show the schema of a deferred version to everyone again."),
    ):
        app.command(name, help=text)(_verb(rpc))


@reported
def deprecate(
    name: Version,
    reason: Reason,
    sunset: Annotated[str, typer.Option(help="Until when it runs: a date, or a span such as 30d.")] = "90d",
    successor: Annotated[str, typer.Option(help="What to use instead, such as echo@2.0.0.")] = "",
    guide: Annotated[str, typer.Option(help="Where the migration is described.")] = "",
    grace: Annotated[str, typer.Option(help="How long its name is kept after the sunset.")] = "30d",
    etag: Etag = None,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Announce the end of a version; again, to revise what was announced."""
    from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
    from toolmesh.registry.v1.lifecycle_service_pb2_grpc import LifecycleServiceStub

    request = pb.DeprecateVersionRequest(
        name=version_name(name),
        reason=reason,
        etag=etag or "",
        sunset_time=_stamp(_moment(sunset)),
        grace_period=_grace(grace),
        successor=version_name(successor) if successor else "",
        migration_guide_url=guide,
    )
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = LifecycleServiceStub(transport.channel)
        _print_changed([transport.unary(stub.DeprecateVersion, request, None, repeatable=False).version], as_json)


@reported
def remove(
    name: Version,
    reason: Reason,
    force: Annotated[bool, typer.Option("--force", help="Wait neither for the grace period nor for callers.")] = False,
    etag: Etag = None,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Retire a version that has ended and that nobody calls; only its name stays.

    While it is called it stays, and its time is extended: exit code 1.
    """
    from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
    from toolmesh.registry.v1.lifecycle_service_pb2_grpc import LifecycleServiceStub

    from toolmesh_sdk.cli.views.documents import document, moment

    request = pb.RemoveVersionRequest(name=version_name(name), reason=reason, etag=etag or "", force=force)
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = LifecycleServiceStub(transport.channel)
        answer = transport.unary(stub.RemoveVersion, request, None, repeatable=False)
    if answer.WhichOneof("outcome") == "removed":
        _print_changed([answer.removed], as_json)
        return
    blocked = answer.blocked
    if as_json:
        output.print_json({"blocked": document(blocked)})
    else:
        until = moment(blocked.version.deprecation.remove_time)
        output.err().print(
            output.text(
                f"{short(blocked.version.name)} is still called ({blocked.calls} calls lately) and stays until {until}."
            )
        )
    raise typer.Exit(1)


@reported
def history(
    name: Name,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many of the last changes.")] = 50,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Show what was done to a tool or one version, newest first: when, what, by whom and why."""
    from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
    from toolmesh.registry.v1.lifecycle_service_pb2_grpc import LifecycleServiceStub

    from toolmesh_sdk.cli.views.documents import document

    found: list[pb.Transition] = []
    request = pb.ListTransitionsRequest(name=tool_or_version(name), page_size=min(number, 1000))
    with as_caller(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = LifecycleServiceStub(transport.channel)
        while len(found) < number:
            page = transport.unary(stub.ListTransitions, request, None, repeatable=True)
            found.extend(page.transitions)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
    if as_json:
        output.print_json({"transitions": [document(each) for each in found[:number]]})
    else:
        headings = ("WHEN", "VERSION", "WHAT", "FROM", "TO", "WHO", "WHY")
        output.print_table(headings, [_row(each) for each in found[:number]])


def _verb(rpc: str) -> Callable[..., None]:
    """Return a command for a verb that needs nothing but a name and a reason."""

    @reported
    def run(
        name: Name,
        reason: Reason = "",
        etag: Etag = None,
        timeout: options.Timeout = 30.0,
        url: options.Url = "",
        token: options.Token = None,
        state: options.State = None,
        ca: options.Ca = None,
        as_json: options.Json = False,
    ) -> None:
        from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
        from toolmesh.registry.v1.lifecycle_service_pb2_grpc import LifecycleServiceStub

        if rpc in _NEEDS_REASON and not reason:
            raise typer.BadParameter("say why; others will read it", param_hint="--reason")
        named = tool_or_version(name) if rpc.endswith("Tool") else version_name(name)
        request = getattr(pb, f"{rpc}Request")(name=named, reason=reason, etag=etag or "")
        with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
            method = getattr(LifecycleServiceStub(transport.channel), rpc)
            answer: Any = transport.unary(method, request, None, repeatable=False)
        _print_changed(answer.versions if rpc.endswith("Tool") else [answer.version], as_json)

    return run


def _print_changed(versions: Sequence[tool_version_pb2.ToolVersion], as_json: bool) -> None:
    from toolmesh.registry.v1 import tool_version_pb2

    from toolmesh_sdk.cli.views.documents import document, moment, word

    if as_json:
        output.print_json({"versions": [document(each) for each in versions]})
        return
    for each in versions:
        parts = [f"{short(each.name)} is {word(tool_version_pb2.LifecycleState.DESCRIPTOR, each.state)}"]
        if each.state == tool_version_pb2.LIFECYCLE_STATE_DEPRECATED:
            parts.append(f"until {moment(each.deprecation.sunset_time)}")
        if each.state == tool_version_pb2.LIFECYCLE_STATE_SUNSET:
            parts.append(f"may be removed from {moment(each.deprecation.remove_time)} on")
        if each.deprecation.successor:
            parts.append(f"use {short(each.deprecation.successor)}")
        output.out().print(output.text(", ".join(parts), (f"  etag {each.etag}", "dim")))


def _row(transition: Any) -> tuple[str, ...]:
    from toolmesh.registry.v1 import tool_version_pb2

    from toolmesh_sdk.cli.views.documents import moment, word

    states = tool_version_pb2.LifecycleState.DESCRIPTOR
    return (
        moment(transition.time),
        short(transition.version),
        transition.verb.replace("_", " "),
        word(states, transition.from_state),
        word(states, transition.to_state),
        transition.actor,
        transition.reason,
    )


def _stamp(moment: datetime) -> Timestamp:
    from google.protobuf.timestamp_pb2 import Timestamp

    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def _moment(text: str) -> datetime:
    """Read a date, or a span from now on."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return _from_now(seconds_of(text, "--sunset"))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _from_now(seconds: int) -> datetime:
    try:
        return datetime.now(UTC) + timedelta(seconds=seconds)
    except OverflowError:
        raise typer.BadParameter("there is no such date", param_hint="--sunset") from None


def _grace(text: str) -> Duration:
    from google.protobuf.duration_pb2 import Duration

    return Duration(seconds=seconds_of(text, "--grace"))
