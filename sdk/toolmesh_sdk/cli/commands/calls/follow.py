"""Follows an invocation on the command line: shows its events, asks for input, and leaves it or cancels it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from toolmesh_sdk.cli.exits import exit_code
from toolmesh_sdk.cli.failures import print_error
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh.executor.v1 import invocation_pb2 as ipb

    from toolmesh_sdk.client import Client
    from toolmesh_sdk.result import Result
    from toolmesh_sdk.streams import JobStream

# The exit code of a process that Ctrl-C ended.
INTERRUPTED = 130
# InvocationState of an invocation that waits for a person.
AWAITING_APPROVAL = 7


def follow_and_print(client: Client, stream: JobStream, max_bytes: int, as_json: bool) -> None:
    """Follow an invocation to its end and print its result."""
    while not _follow(stream):
        _leave_or_cancel(stream)
    print_loaded(client, stream.result(), max_bytes, as_json)


def print_loaded(client: Client, result: Result, max_bytes: int, as_json: bool) -> None:
    """Print a result, with the content that the mesh stored."""
    from toolmesh_sdk.cli.views.results import load_content, print_result, result_document

    loaded = load_content(client, result, max_bytes)
    if as_json:
        output.print_json(result_document(loaded))
    else:
        print_result(loaded)
    if loaded.error is not None:
        if not as_json:
            print_error(loaded.error, as_json=False)
        raise typer.Exit(exit_code(loaded.error))


def _follow(stream: JobStream) -> bool:
    """Show events until the end; return False if Ctrl-C came before."""
    from toolmesh_sdk.cli.views.job_events import EventView

    try:
        events = iter(stream)
        while True:
            asked = _show_until_question(EventView(), events)
            if asked is None:
                return True
            _answer(stream, asked)
    except KeyboardInterrupt:
        return False


def how_to_approve(ticket: str) -> str:
    """Return what to do about an invocation that waits for a person."""
    return f"awaiting_approval: an approver runs: toolmesh approvals approve {ticket}"


def _show_until_question(view: Any, events: Any) -> ipb.InputRequest | None:
    """Show events; return the next question, or None at the end."""
    with view.opened():
        for event in events:
            view.show(event)
            if event.transition.state == AWAITING_APPROVAL:
                output.err().print(output.text((how_to_approve(event.transition.reason), "yellow")))
            if event.HasField("input_request"):
                asked: ipb.InputRequest = event.input_request
                return asked
    return None


def _answer(stream: JobStream, asked: ipb.InputRequest) -> None:
    """Ask for the answer on a terminal; elsewhere say how to answer."""
    from toolmesh_sdk.cli.inputs.json_input import parse_json

    if not sys.stdin.isatty():
        hint = f"Answer with: toolmesh jobs resume {stream.name} --input JSON"
        output.err().print(output.text((hint, "dim")))
        return
    while True:
        try:
            text = typer.prompt(f"{output.printable(asked.message)} (JSON)", err=True)
            stream.answer(parse_json(text, "answer"), asked.input_id)
        except typer.BadParameter as error:
            output.err().print(output.text((error.message, "red")))
        except ToolmeshError as error:
            print_error(error, as_json=False)
            if not error.violations:
                return
        else:
            return


def _leave_or_cancel(stream: JobStream) -> None:
    """After Ctrl-C: leave the invocation alone, cancel it, or go on. Without a terminal it is left alone."""
    if not stream.name:
        raise typer.Exit(INTERRUPTED)
    if not sys.stdin.isatty():
        _leave(stream)
    try:
        choice = typer.prompt("\nDetach, cancel or go on? [d/c/g]", default="d", show_default=False, err=True)
    except (KeyboardInterrupt, typer.Abort):
        _leave(stream)
    if choice.strip().lower().startswith("c"):
        stream.cancel()
    elif not choice.strip().lower().startswith("g"):
        _leave(stream)


def _leave(stream: JobStream) -> None:
    output.err().print(output.text((f"It goes on. Follow it with: toolmesh jobs watch {stream.name}", "dim")))
    raise typer.Exit(INTERRUPTED)
