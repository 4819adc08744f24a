"""`toolmesh tools logs`: shows what the calls of a tool printed. `toolmesh logs --tool` does the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.tool_names import short_name
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from rich.console import Console
    from toolmesh.executor.v1 import tool_log_pb2


@report_errors
@add_target_options()
def logs(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool, such as echo; any with --invocation.")] = "",
    version: Annotated[str, typer.Option(help="Only this exact version.")] = "",
    invocation: Annotated[str, typer.Option(help="Only this invocation id.")] = "",
    number: Annotated[int, typer.Option("--number", "-n", min=1, max=1000, help="The number of calls.")] = 20,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show what calls printed and logged, oldest first.

    Needs the scope tools:logs. With --json: {"logs": [...]}.

    \b
    Example:
      toolmesh tools logs acme.resize --invocation 01a2b3
    """
    print_tool_logs(target, tool, version=version, invocation=invocation, number=number, as_json=as_json)


def print_tool_logs(
    target: Target, tool: str, *, version: str = "", invocation: str = "", number: int, as_json: bool
) -> None:
    """Print the newest logs of a tool or of one invocation, oldest first."""
    from toolmesh_sdk.cli.views.documents import message_to_dict
    from toolmesh_sdk.tool_logs import ToolLogReader

    if not tool and not invocation:
        raise typer.BadParameter("name a tool, or an invocation with --invocation")
    with open_client(target) as client:
        reader = ToolLogReader(client)
        found = list(reader.list(tool, version=version, invocation_id=invocation, number=number))[::-1]
    if as_json:
        output.print_json({"logs": [message_to_dict(log) for log in found]})
        return
    if not found:
        output.err().print("No call printed anything that is still stored. Lines appear about a second after a call.")
    for log in found:
        print_log(output.out(), log)


def print_log(console: Console, log: tool_log_pb2.ToolLog) -> None:
    """Print the log of one call."""
    from toolmesh_sdk.cli.views.documents import format_time

    heading = f"{format_time(log.create_time)}  {short_name(log.tool_version)}  {log.subject}  {log.invocation_id}"
    console.print(output.text((heading, "dim")))
    for line in log.lines:
        console.print(output.text((f"  {_source(line.source):<7} ", "dim"), line.text))
    if log.omitted_characters:
        console.print(output.text((f"  {log.omitted_characters:,} more characters were left out", "yellow")))


def _source(number: Any) -> str:
    from toolmesh.executor.v1 import tool_log_pb2

    from toolmesh_sdk.cli.views.documents import enum_label

    return enum_label(tool_log_pb2.ToolLogSource.DESCRIPTOR, number)
