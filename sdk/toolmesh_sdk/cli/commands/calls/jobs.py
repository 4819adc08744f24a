"""`toolmesh jobs`: shows, awaits, follows, answers and cancels invocations that run without their caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.executor.v1 import invocation_pb2 as ipb

app = typer.Typer(help="Show, await and cancel running invocations.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the invocation: invocations/...")]


@app.command("list")
@report_errors
@add_target_options()
def list_jobs(
    in_state: Annotated[
        list[str] | None,
        typer.Option("--in-state", help="Only this state, such as running; repeatable.", show_default="all"),
    ] = None,
    tool: Annotated[str, typer.Option(help="Only invocations of this tool.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """List your invocations, newest first.

    \b
    Example:
      toolmesh jobs list
    """
    from itertools import islice

    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict
    from toolmesh_sdk.jobs import JobFilters, state_of

    filters = JobFilters(states=[_known_state(each) for each in in_state or []], tool=tool)
    with open_client(target) as client:
        found = list(islice(client.list_jobs(page_size=min(limit, 100), **filters), limit))
    if as_json:
        output.print_json({"invocations": [message_to_dict(each) for each in found]})
        return
    rows = [(each.name, state_of(each), _tool_of(each), format_time(each.create_time)) for each in found]
    output.print_table(("NAME", "STATE", "TOOL", "STARTED"), rows)


@app.command()
@report_errors
@add_target_options()
def show(name: Name, *, target: Target, as_json: bool) -> None:
    """Show one invocation.

    \b
    Example:
      toolmesh jobs show invocations/0198c
    """
    with open_client(target) as client:
        _print_job(client.job(name).get(), as_json)


@app.command()
@report_errors
@add_target_options()
def wait(
    name: Name,
    longest: Annotated[
        float, typer.Option("--for", min=0.1, help="Seconds to wait; the invocation goes on after that.")
    ] = 3600.0,
    max_bytes: options.MaxBytes = options.SHOWN_BYTES,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Wait for the end and print the result.

    \b
    Example:
      toolmesh jobs wait invocations/0198c
    """
    from toolmesh_sdk.cli.views.results import load_content, print_result, result_document

    with open_client(target) as client:
        loaded = load_content(client, client.job(name).result(timeout=longest), max_bytes)
    if as_json:
        output.print_json(result_document(loaded))
    else:
        print_result(loaded)


@app.command()
@report_errors
@add_target_options()
def watch(
    name: Name,
    after: Annotated[int, typer.Option(min=0, help="Begin behind this sequence.")] = 0,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Print the events of an invocation until its end.

    \b
    Example:
      toolmesh jobs watch invocations/0198c
    """
    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict
    from toolmesh_sdk.cli.views.job_events import describe

    with open_client(target) as client:
        for event in client.job(name).watch(after=after):
            if as_json:
                output.print_json(message_to_dict(event), lines=True, flush=True)
            else:
                moment = format_time(event.event_time)
                output.out().print(output.text(f"{event.sequence:>4}  {moment}  ", describe(event)))


@app.command()
@report_errors
@add_target_options()
def resume(
    name: Name,
    answer: Annotated[
        str, typer.Option("--input", metavar="JSON", help="The answer to the question that its tool waits with.")
    ] = "",
    checkpoint: Annotated[
        str, typer.Option(metavar="ID", help="The checkpoint to start from.", show_default="the newest usable one")
    ] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Resume an invocation, or answer its question.

    One that failed, timed out or was cancelled is started again from a checkpoint, as a new invocation.

    \b
    Example:
      toolmesh jobs resume invocations/0198c
      toolmesh jobs resume invocations/0198c --checkpoint 7
      toolmesh jobs resume invocations/0198c --input '{"approve": true}'
    """
    from toolmesh_sdk.cli.inputs.json_input import parse_json

    if answer and checkpoint:
        raise typer.BadParameter("--input and --checkpoint exclude each other", param_hint="--checkpoint")
    if not answer:
        with open_client(target) as client:
            _print_job(client.job(name).resume(checkpoint).get(), as_json)
        return
    value = parse_json(answer, "--input")
    with open_client(target) as client:
        job = client.job(name)
        waiting = job.get()
        if not waiting.HasField("input_request"):
            raise typer.BadParameter(f"{name} waits for no input; see `toolmesh jobs show {name}`", param_hint="NAME")
        _print_job(job.answer(value, waiting.input_request.input_id), as_json)


@app.command()
@report_errors
@add_target_options()
def checkpoints(name: Name, *, target: Target, as_json: bool) -> None:
    """List the checkpoints of an invocation.

    \b
    Example:
      toolmesh jobs checkpoints invocations/0198c
    """
    from toolmesh.executor.v1.invocation_pb2 import CheckpointKind

    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict

    with open_client(target) as client:
        found = client.job(name).checkpoints()
    if as_json:
        output.print_json({"checkpoints": [message_to_dict(each) for each in found]})
        return
    rows = [
        (
            str(each.number),
            CheckpointKind.Name(each.kind).removeprefix("CHECKPOINT_KIND_").lower(),
            each.label,
            str(each.state_bytes),
            str(each.stored_bytes),
            format_time(each.create_time),
        )
        for each in found
    ]
    output.print_table(("ID", "KIND", "LABEL", "BYTES", "STORED", "MADE"), rows)


@app.command()
@report_errors
@add_target_options()
def cancel(name: Name, *, target: Target, as_json: bool) -> None:
    """Cancel an invocation.

    \b
    Example:
      toolmesh jobs cancel invocations/0198c
    """
    with open_client(target) as client:
        _print_job(client.job(name).cancel(), as_json)


def _print_job(job: ipb.Invocation, as_json: bool) -> None:
    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict
    from toolmesh_sdk.jobs import state_of

    if as_json:
        output.print_json({"invocation": message_to_dict(job)})
        return
    rows = [
        ("state", state_of(job)),
        ("question", job.input_request.message),
        ("tool", _tool_of(job)),
        ("key", job.idempotency_key),
        ("executor", job.executor_id),
        ("accepted", format_time(job.create_time)),
        ("started", format_time(job.start_time) if job.HasField("start_time") else ""),
        ("ended", format_time(job.end_time) if job.HasField("end_time") else ""),
        ("deadline", format_time(job.deadline)),
        ("error", f"{job.error.code} {job.error.message}" if job.HasField("error") else ""),
        ("trace", job.trace_id),
    ]
    output.print_table((job.name, ""), [(name, value) for name, value in rows if value])


def _tool_of(job: ipb.Invocation) -> str:
    return str(job.tool_version).removeprefix("tools/").replace("/versions/", "@")


def _known_state(label: str) -> str:
    from toolmesh.executor.v1 import invocation_pb2 as ipb

    if f"INVOCATION_STATE_{label.upper()}" not in ipb.InvocationState.DESCRIPTOR.values_by_name:
        raise typer.BadParameter(f"{label} is not a state of an invocation", param_hint="--in-state")
    return label
