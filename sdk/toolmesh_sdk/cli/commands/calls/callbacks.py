"""`toolmesh callbacks`: shows the deliveries to callbacks of invocations, and sends them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.executor.v1 import callback_delivery_pb2 as dpb

app = typer.Typer(help="Show and repeat deliveries to callbacks.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the invocation: invocations/...")]
_STATES = ("pending", "delivered", "failed")


@app.command("list")
@report_errors
@add_target_options()
def list_callbacks(
    in_state: Annotated[
        list[str] | None,
        typer.Option("--in-state", help=f"Only this state: {', '.join(_STATES)}; repeatable.", show_default="all"),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """List deliveries, newest first.

    \b
    Example:
      toolmesh callbacks list --in-state failed
    """
    from toolmesh_sdk.callbacks import Callbacks, delivery_state
    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict

    states = in_state or []
    for each in states:
        if each not in _STATES:
            raise typer.BadParameter(f"{each} is not a state of a delivery", param_hint="--in-state")
    with open_client(target) as client:
        found = list(Callbacks(client).list(states=states, number=limit))
    if as_json:
        output.print_json({"deliveries": [message_to_dict(each) for each in found]})
        return
    rows = [
        (_invocation(each), delivery_state(each), str(each.tries), each.detail, format_time(each.end_time))
        for each in found
    ]
    output.print_table(("INVOCATION", "STATE", "TRIES", "LAST", "ENDED"), rows)


@app.command()
@report_errors
@add_target_options()
def show(name: Name, *, target: Target, as_json: bool) -> None:
    """Show the delivery of one invocation.

    \b
    Example:
      toolmesh callbacks show invocations/0198c
    """
    from toolmesh_sdk.callbacks import Callbacks

    with open_client(target) as client:
        _print_delivery(Callbacks(client).get(name), as_json)


@app.command()
@report_errors
@add_target_options()
def redeliver(name: Name, *, target: Target, as_json: bool) -> None:
    """Send the report of an invocation again.

    \b
    Example:
      toolmesh callbacks redeliver invocations/0198c
    """
    from toolmesh_sdk.callbacks import Callbacks

    with open_client(target) as client:
        _print_delivery(Callbacks(client).redeliver(name), as_json)


def _print_delivery(delivery: dpb.CallbackDelivery, as_json: bool) -> None:
    from toolmesh_sdk.callbacks import delivery_state
    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict

    if as_json:
        output.print_json({"delivery": message_to_dict(delivery)})
        return
    rows = [
        ("state", delivery_state(delivery)),
        ("tries", str(delivery.tries)),
        ("last", delivery.detail),
        ("tried", format_time(delivery.try_time) if delivery.HasField("try_time") else ""),
        ("next", format_time(delivery.next_time) if delivery.HasField("next_time") else ""),
        ("ended", format_time(delivery.end_time)),
        ("deleted", format_time(delivery.expire_time)),
        ("error", f"{delivery.error.code} {delivery.error.message}" if delivery.HasField("error") else ""),
    ]
    output.print_table((_invocation(delivery), ""), [(name, value) for name, value in rows if value])


def _invocation(delivery: dpb.CallbackDelivery) -> str:
    return str(delivery.name).removesuffix("/callbackDelivery")
