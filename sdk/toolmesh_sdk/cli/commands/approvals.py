"""`toolmesh approvals`: lists, shows, watches and decides tickets of calls that need a person."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target, open_approver
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.approval.v1 import ticket_pb2

app = typer.Typer(help="List and decide calls that need approval.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the ticket: tickets/...")]


class View(StrEnum):
    """Which tickets are shown."""

    ALL = "all"
    APPROVER = "approver"
    REQUESTER = "requester"


ShownView = Annotated[View, typer.Option(help="Those that you may decide, those that you requested, or all.")]


@app.command("list")
@report_errors
@add_target_options()
def list_tickets(
    in_state: Annotated[str, typer.Option(help="Only this state, such as pending.", show_default="all")] = "",
    view: ShownView = View.ALL,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    names: Annotated[bool, typer.Option("--names", help="Print the names only, one per line.")] = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """List tickets, newest first.

    \b
    Example:
      toolmesh approvals list --in-state pending
    """
    from toolmesh_sdk.approvals import Approvals
    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict

    with open_approver(target) as client:
        wanted = Approvals(client).list(state=_known_state(in_state), view=_view(view), number=limit)
        tickets = list(wanted)
    if as_json:
        output.print_json({"tickets": [message_to_dict(ticket) for ticket in tickets]})
        return
    if names:
        for ticket in tickets:
            output.out().print(output.text(ticket.name))
        return
    rows = [(*_summary(ticket), format_time(ticket.expire_time)) for ticket in tickets]
    output.print_table(("NAME", "STATE", "TOOL", "REQUESTER", "DENIED AT"), rows)


@app.command()
@report_errors
@add_target_options()
def show(name: Name, *, target: Target, as_json: bool) -> None:
    """Show one ticket: the call, its preview and votes.

    \b
    Example:
      toolmesh approvals show tickets/0198c
    """
    from toolmesh_sdk.approvals import Approvals

    with open_approver(target) as client:
        _print_ticket(Approvals(client).get(name), as_json)


@app.command()
@report_errors
@add_target_options()
def approve(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; recorded in the log.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Approve a call.

    \b
    Example:
      toolmesh approvals approve tickets/0198c --reason 'the report is wanted'
    """
    from toolmesh_sdk.approvals import Approvals

    with open_approver(target) as client:
        _print_ticket(Approvals(client).approve(name, reason), as_json)


@app.command()
@report_errors
@add_target_options()
def deny(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; recorded in the log.")],
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Deny a call.

    \b
    Example:
      toolmesh approvals deny tickets/0198c --reason 'wrong recipient'
    """
    from toolmesh_sdk.approvals import Approvals

    with open_approver(target) as client:
        _print_ticket(Approvals(client).deny(name, reason), as_json)


@app.command()
@report_errors
@add_target_options()
def watch(
    view: ShownView = View.APPROVER,
    longest: Annotated[float | None, typer.Option("--for", min=0.1, help="Seconds; without it, until Ctrl-C.")] = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Print open tickets, and each change.

    \b
    Example:
      toolmesh approvals watch
    """
    from toolmesh_sdk.approvals import Approvals
    from toolmesh_sdk.cli.views.documents import message_to_dict

    with open_approver(target) as client:
        for ticket in Approvals(client).watch(view=_view(view), timeout=longest):
            if as_json:
                output.print_json(message_to_dict(ticket), lines=True, flush=True)
            else:
                output.out().print(output.text("  ".join(_summary(ticket))))


def _view(view: View) -> str:
    return "" if view is View.ALL else view.value


def _summary(ticket: ticket_pb2.Ticket) -> tuple[str, str, str, str]:
    from toolmesh_sdk.approvals import ticket_state

    tool = str(ticket.tool_version).removeprefix("tools/").replace("/versions/", "@")
    return ticket.name, ticket_state(ticket), tool, ticket.requester.agent or ticket.requester.subject


def _print_ticket(ticket: ticket_pb2.Ticket, as_json: bool) -> None:
    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict

    if as_json:
        output.print_json({"ticket": message_to_dict(ticket)})
        return
    _, state, tool, _ = _summary(ticket)
    requester = ticket.requester
    acting = f"{requester.agent} for {requester.subject}" if requester.agent else requester.subject
    approvals = sum(verdict.approved for verdict in ticket.verdicts)
    rows = [
        ("state", state),
        ("tool", tool),
        ("arguments", ticket.redacted_arguments.decode()),
        ("requester", acting),
        ("why", ticket.reason),
        ("preview", ticket.preview.decode()),
        ("risk", f"{ticket.risk.mutation_class}, impact {ticket.risk.impact_scope} of 10"),
        ("asked", ", ".join(ticket.escalation_chain[: ticket.escalation_index + 1])),
        ("approvals", f"{approvals} of {ticket.quorum}"),
        ("if approved", ticket.consequences.on_approve),
        ("if denied", ticket.consequences.on_deny),
        ("without answer", ticket.consequences.on_silence),
        *((f"{step.number}. {step.kind}", _step_text(step, format_time(step.time))) for step in ticket.steps),
    ]
    output.print_table((ticket.name, ""), [(name, value) for name, value in rows if value])


def _step_text(step: ticket_pb2.TicketStep, time: str) -> str:
    return "  ".join(part for part in (time, step.actor, step.detail) if part)


def _known_state(label: str) -> str:
    from toolmesh.approval.v1 import ticket_pb2

    if label and f"TICKET_STATE_{label.upper()}" not in ticket_pb2.TicketState.DESCRIPTOR.values_by_name:
        raise typer.BadParameter(f"{label} is not a state of a ticket", param_hint="--in-state")
    return label
