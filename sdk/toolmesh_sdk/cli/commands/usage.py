"""`toolmesh usage`: what is called, by whom, how well and how fast."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.target import Place, open_client
from toolmesh_sdk.cli.views import output

app = typer.Typer(help="See what is used, and how it does.", no_args_is_help=True)
_FIRST_CALL = """Make a call and look again in a second: toolmesh call echo '{"text": "hello"}'"""
_MOST_DAYS = 400


class By(StrEnum):
    """What a ranking is ordered by."""

    CALLS = "calls"
    ERRORS = "errors"
    COST = "cost"
    LATENCY = "latency"


Days = Annotated[int, typer.Option("--days", min=1, max=_MOST_DAYS, help="How many days, up to today (UTC).")]


@app.command()
@reported
def top(
    by: Annotated[By, typer.Option(help="What to order by.")] = By.CALLS,
    callers: Annotated[bool, typer.Option("--callers", help="Callers instead of tools.")] = False,
    number: Annotated[int, typer.Option("--number", "-n", min=1, max=1000, help="How many.")] = 20,
    days: Days = 30,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Show the tools that are used most, or who uses them.

    Latency orders by the mean. With --json: {"entries": [...], "coverage": {...}}.
    """
    from toolmesh_sdk.cli.views.documents import document
    from toolmesh_sdk.usage import UsageReader

    with open_client(Place(url=url, token=token, state=state, ca=ca), timeout) as client:
        usage, since = UsageReader(client), _since(days)
        found = usage.top("caller" if callers else "tool", by, number=number, from_time=since)
        total = usage.get(from_time=since)
    if as_json:
        output.print_json(document(found, without=frozenset({"next_page_token"})))
        return
    from toolmesh_sdk.cli.views import usage_report as report

    if found.entries:
        report.print_top(found, total, by=by, what="Callers" if callers else "Tools", days=days)
    else:
        _nothing(f"Nothing was called in the last {_spell(days)}.", days)
    report.remark(found.coverage)


@app.command()
@reported
def tool(
    name: Annotated[str, typer.Argument(metavar="TOOL", help="The tool, such as echo or acme.send_email.")],
    version: Annotated[str, typer.Option(help="Only this version, exactly.")] = "",
    days: Days = 30,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Show how a tool is used: its days, outcomes, latency, versions and callers.

    With --json: {"usage": {...}, "tool": {...}, "versions": {...}, "callers": {...}}.
    """
    from toolmesh_sdk.usage import UsageFilters, UsageReader, tool_resource

    filters: UsageFilters = {"tool": name, "version": version, "from_time": _since(days)}
    with open_client(Place(url=url, token=token, state=state, ca=ca), timeout) as client:
        usage = UsageReader(client)
        answer = usage.get(**filters)
        known = usage.tool(tool_resource(name, version), from_time=_since(days))
        versions = usage.top("version", number=10, **filters)
        callers = usage.top("caller", number=5, **filters)
    if as_json:
        _print_documents(usage=answer, tool=known, versions=versions, callers=callers)
        return
    from toolmesh_sdk.cli.views import usage_report as report

    shown = report.shown_tool(known.name)
    if not answer.total.calls:
        last = (
            f" Its last call was on {report.date_of(known.last_call_time)}." if known.HasField("last_call_time") else ""
        )
        advice = f"`toolmesh tools show {shown.partition('@')[0]}` shows how to call it, if it is there."
        _nothing(f"{shown} was not called in the last {_spell(days)}.{last}", days, advice)
    else:
        report.print_usage(shown, answer, days=days, callers=known)
        report.print_ranking("VERSION", versions, last=True)
        report.print_ranking("CALLER", callers)
    report.remark(answer.coverage)


@app.command()
@reported
def caller(
    subject: Annotated[
        str, typer.Argument(metavar="DID", help="The caller's subject, as `usage top --callers` lists it.")
    ],
    days: Days = 30,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Show what a caller uses: its days, outcomes, latency and tools.

    With --json: {"usage": {...}, "tools": {...}}.
    """
    from toolmesh_sdk.usage import UsageReader

    with open_client(Place(url=url, token=token, state=state, ca=ca), timeout) as client:
        usage = UsageReader(client)
        answer = usage.get(subject=subject, from_time=_since(days))
        tools = usage.top("version", number=10, subject=subject, from_time=_since(days))
    if as_json:
        _print_documents(usage=answer, tools=tools)
        return
    from toolmesh_sdk.cli.views import usage_report as report

    if not answer.total.calls:
        _nothing(
            f"{subject} made no calls in the last {_spell(days)}.",
            days,
            "`toolmesh usage top --callers` lists who did.",
        )
    else:
        report.print_usage(subject, answer, days=days)
        report.print_ranking("TOOL", tools)
    report.remark(answer.coverage)


def _since(days: int) -> datetime:
    return datetime.now(UTC) - timedelta(days=days - 1)


def _spell(days: int) -> str:
    return "day" if days == 1 else f"{days} days"


def _nothing(found: str, days: int, advice: str = _FIRST_CALL) -> None:
    console = output.err()
    console.print(output.text(found))
    console.print(output.text(advice))
    if days < _MOST_DAYS:
        console.print(output.text(f"Further back: --days {_MOST_DAYS}"))


def _print_documents(**answers: Any) -> None:
    from toolmesh_sdk.cli.views.documents import document

    whole = {name: document(answer, without=frozenset({"next_page_token"})) for name, answer in answers.items()}
    output.print_json(whole)
