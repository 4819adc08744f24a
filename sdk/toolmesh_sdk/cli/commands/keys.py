"""`toolmesh keys`: shows idempotency keys, and settles those whose outcome is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_admin
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.executor.v1 import idempotency_key_pb2 as kpb

app = typer.Typer(help="Show and settle idempotency keys.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the key: keys/...")]
_SERVICE = "executor"
_STATES = ("running", "succeeded", "failed", "unknown", "unresolved")


@app.command("list")
@report_errors
@add_target_options()
def list_keys(
    key_state: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this state: {', '.join(_STATES)}.", show_default="unknown and unresolved"),
    ] = None,
    tool: Annotated[str, typer.Option(help="Only keys of this tool.")] = "",
    subject: Annotated[str, typer.Option(help="Only keys of this subject.")] = "",
    key: Annotated[str, typer.Option(help="Only this key, as the caller sent it.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """List keys, by default those to be settled.

    \b
    Example:
      toolmesh keys list
    """
    from toolmesh.executor.v1 import key_service_pb2 as pb
    from toolmesh.executor.v1.key_service_pb2_grpc import KeyServiceStub

    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict

    request = pb.ListKeysRequest(states=_state_numbers(key_state or []), tool=tool, subject=subject, key=key)
    keys: list[kpb.IdempotencyKey] = []
    with as_admin(target, service=_SERVICE) as transport:
        stub = KeyServiceStub(transport.channel)
        while True:
            page = transport.unary(stub.ListKeys, request, None, repeatable=True)
            keys.extend(page.keys)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
    if as_json:
        output.print_json({"keys": [message_to_dict(each) for each in keys]})
        return
    rows = [
        (each.name, _label(each), each.tool, each.subject, each.key, format_time(each.create_time)) for each in keys
    ]
    output.print_table(("NAME", "STATE", "TOOL", "SUBJECT", "KEY", "CLAIMED"), rows)


@app.command()
@report_errors
@add_target_options()
def show(name: Name, *, target: Target, as_json: bool) -> None:
    """Show one key.

    \b
    Example:
      toolmesh keys show keys/0198c
    """
    from toolmesh.executor.v1 import key_service_pb2 as pb
    from toolmesh.executor.v1.key_service_pb2_grpc import KeyServiceStub

    with as_admin(target, service=_SERVICE) as transport:
        stub = KeyServiceStub(transport.channel)
        _print_key(transport.unary(stub.GetKey, pb.GetKeyRequest(name=name), None, repeatable=True).key, as_json)


@app.command()
@report_errors
@add_target_options()
def settle(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", "-r", help="How it was found out; recorded in the log.")],
    result: Annotated[
        str, typer.Option(help="The effect happened: the result that the key answers, as JSON.", show_default=False)
    ] = "",
    absent: Annotated[
        bool, typer.Option("--absent", help="The effect did not happen: the next call with the key runs.")
    ] = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Settle a key whose outcome is unknown.

    First find out whether the effect happened, with the audit records of its invocations (`toolmesh keys show`) and in
    the system that the tool changes. State it with either --result or --absent.

    \b
    Example:
      toolmesh keys settle keys/0198c --absent --reason 'the ledger has no such entry'
    """
    from toolmesh.executor.v1 import key_service_pb2 as pb
    from toolmesh.executor.v1.key_service_pb2_grpc import KeyServiceStub

    from toolmesh_sdk._wire.payload import dump
    from toolmesh_sdk.cli.inputs.json_input import parse_json

    if bool(result) == absent:
        raise typer.BadParameter("state either --result JSON or --absent", param_hint="--result")
    request = pb.SettleKeyRequest(name=name, reason=reason)
    if absent:
        request.absent.SetInParent()
    else:
        request.result = dump(parse_json(result, "--result"))
    with as_admin(target, service=_SERVICE) as transport:
        stub = KeyServiceStub(transport.channel)
        settled = transport.unary(stub.SettleKey, request, None, repeatable=False)
    if as_json:
        from toolmesh_sdk.cli.views.documents import message_to_dict

        output.print_json({"key": message_to_dict(settled.key), "record": settled.record})
    else:
        outcome = "free: the next call with it runs" if absent else "settled: it answers the result"
        output.out().print(output.text(f"{settled.key.name} is {outcome}", (f"  {settled.record}", "dim")))


def _print_key(key: kpb.IdempotencyKey, as_json: bool) -> None:
    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict

    if as_json:
        output.print_json({"key": message_to_dict(key)})
        return
    rows = [
        ("state", _label(key)),
        ("tool", key.tool),
        ("tenant", key.tenant),
        ("subject", key.subject),
        ("session", key.session_id),
        ("key", key.key),
        ("invocation", key.invocation_id),
        ("may have run", " ".join(key.unresolved_invocations)),
        ("arguments", key.arguments_digest),
        ("claimed", format_time(key.create_time)),
        ("expires", format_time(key.expire_time)),
    ]
    output.print_table((key.name, ""), [(name, value) for name, value in rows if value])


def _label(key: kpb.IdempotencyKey) -> str:
    from toolmesh.executor.v1 import idempotency_key_pb2 as kpb

    return str(kpb.KeyState.Name(key.state)).removeprefix("KEY_STATE_").lower()


def _state_numbers(states: list[str]) -> list[kpb.KeyState.ValueType]:
    from toolmesh.executor.v1 import idempotency_key_pb2 as kpb

    unknown = [state for state in states if state not in _STATES]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]} is none of {', '.join(_STATES)}", param_hint="--key-state")
    return [kpb.KeyState.Value(f"KEY_STATE_{state.upper()}") for state in states]
