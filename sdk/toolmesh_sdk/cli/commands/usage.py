"""`toolmesh usage`: shows calls, callers, outcomes, latency and cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.inputs.tool_completion import complete_tool
from toolmesh_sdk.cli.views import output

app = typer.Typer(help="Show usage of tools and callers.", no_args_is_help=True)
_FIRST_CALL = """Make a call and try again in a second: toolmesh call echo '{"text": "hello"}'"""
_MOST_DAYS = 400


class Group(StrEnum):
    """What a ranking lists."""

    TOOLS = "tools"
    VERSIONS = "versions"
    CALLERS = "callers"
    TASKS = "tasks"
    TENANTS = "tenants"


class By(StrEnum):
    """The order of a ranking."""

    CALLS = "calls"
    ERRORS = "errors"
    COST = "cost"
    LATENCY = "latency"


Days = Annotated[int, typer.Option("--days", min=1, max=_MOST_DAYS, help="The number of days, up to today (UTC).")]


@app.command()
@report_errors
@add_target_options()
def top(
    by: Annotated[By, typer.Option(help="The measure to order by.")] = By.CALLS,
    of: Annotated[Group, typer.Option(help="What to rank.")] = Group.TOOLS,
    callers: Annotated[bool, typer.Option("--callers", help="The same as --of callers.")] = False,
    tool: Annotated[str, typer.Option(help="Only calls of this tool.")] = "",
    task: Annotated[str, typer.Option(help="Only calls of this task.")] = "",
    tenant: Annotated[str, typer.Option(help="Only calls of this tenant.")] = "",
    number: Annotated[int, typer.Option("--number", "-n", min=1, max=1000, help="The number of entries.")] = 20,
    days: Days = 30,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Rank tools, callers, tasks or tenants by use.

    Latency is ranked by its mean. With --json: {"entries": [...], "coverage": {...}}.

    \b
    Example:
      toolmesh usage top --by cost --of tasks --tool acme.translate
      toolmesh usage top --by errors --days 7
    """
    from toolmesh_sdk._wire.usage_requests import UsageFilters
    from toolmesh_sdk.cli.views.documents import message_to_dict
    from toolmesh_sdk.usage import UsageReader

    group = Group.CALLERS if callers else of
    filters: UsageFilters = {"tool": tool, "task_id": task, "tenant": tenant, "from_time": _since(days)}
    with open_client(target) as client:
        usage = UsageReader(client)
        ranking = usage.top(group.removesuffix("s"), by, number=number, **filters)
        total = usage.get(**filters)
    if as_json:
        output.print_json({"entries": [], **message_to_dict(ranking, without=frozenset({"next_page_token"}))})
        return
    from toolmesh_sdk.cli.views import usage_report as report

    if ranking.entries:
        report.print_top(ranking, total, by=by, what=group.capitalize(), days=days)
    else:
        _print_no_calls(f"Nothing was called in the last {_format_days(days)}.", days)
    report.print_coverage_notes(ranking.coverage)


@app.command()
@report_errors
@add_target_options()
def tool(
    name: Annotated[
        str,
        typer.Argument(metavar="TOOL", help="The tool, such as echo or acme.send_email.", autocompletion=complete_tool),
    ],
    version: Annotated[str, typer.Option(help="Only this exact version.")] = "",
    days: Days = 30,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show the usage of one tool.

    Calls per day, outcomes, latency, versions and callers.

    With --json: {"usage": {...}, "tool": {...}, "versions": {...}, "callers": {...}}.

    \b
    Example:
      toolmesh usage tool echo
    """
    from toolmesh_sdk._wire.usage_requests import UsageFilters
    from toolmesh_sdk.usage import UsageReader, tool_resource

    filters: UsageFilters = {"tool": name, "version": version, "from_time": _since(days)}
    with open_client(target) as client:
        usage = UsageReader(client)
        answer = usage.get(**filters)
        known = usage.tool(tool_resource(name, version), from_time=_since(days))
        versions = usage.top("version", number=10, **filters)
        callers = usage.top("caller", number=5, **filters)
    if as_json:
        _print_documents(usage=answer, tool=known, versions=versions, callers=callers)
        return
    from toolmesh_sdk.cli.views import usage_report as report

    shown = report.display_tool(known.name)
    if not answer.total.calls:
        last = (
            f" Its last call was on {report.format_date(known.last_call_time)}."
            if known.HasField("last_call_time")
            else ""
        )
        advice = f"`toolmesh tools show {shown.partition('@')[0]}` shows how to call it, if it exists."
        _print_no_calls(f"{shown} was not called in the last {_format_days(days)}.{last}", days, advice)
    else:
        report.print_usage(shown, answer, days=days, callers=known)
        report.print_ranking("VERSION", versions, last=True)
        report.print_ranking("CALLER", callers)
    report.print_coverage_notes(answer.coverage)


@app.command()
@report_errors
@add_target_options()
def caller(
    subject: Annotated[
        str, typer.Argument(metavar="DID", help="The subject of the caller, as in `usage top --callers`.")
    ],
    days: Days = 30,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show the usage of one caller.

    Calls per day, outcomes, latency and tools.

    With --json: {"usage": {...}, "tools": {...}}.

    \b
    Example:
      toolmesh usage caller did:web:example.com:agents:planner
    """
    from toolmesh_sdk.usage import UsageReader

    with open_client(target) as client:
        usage = UsageReader(client)
        answer = usage.get(subject=subject, from_time=_since(days))
        tools = usage.top("version", number=10, subject=subject, from_time=_since(days))
    if as_json:
        _print_documents(usage=answer, tools=tools)
        return
    from toolmesh_sdk.cli.views import usage_report as report

    if not answer.total.calls:
        _print_no_calls(
            f"{subject} made no calls in the last {_format_days(days)}.",
            days,
            "`toolmesh usage top --callers` lists the callers.",
        )
    else:
        report.print_usage(subject, answer, days=days)
        report.print_ranking("TOOL", tools)
    report.print_coverage_notes(answer.coverage)


def _since(days: int) -> datetime:
    return datetime.now(UTC) - timedelta(days=days - 1)


def _format_days(days: int) -> str:
    return "day" if days == 1 else f"{days} days"


def _print_no_calls(message: str, days: int, advice: str = _FIRST_CALL) -> None:
    console = output.err()
    console.print(output.text(message))
    console.print(output.text(advice))
    if days < _MOST_DAYS:
        console.print(output.text(f"Look further back with --days {_MOST_DAYS}"))


def _print_documents(**answers: Any) -> None:
    from toolmesh_sdk.cli.views.documents import message_to_dict

    whole = {name: message_to_dict(answer, without=frozenset({"next_page_token"})) for name, answer in answers.items()}
    output.print_json(whole)
