"""Prints the errors of commands, as text or as JSON, and maps them to exit codes."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer
from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk.cli.exits import UNREACHABLE, exit_code
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError, error_for_reason, error_from_failure

Parameters = ParamSpec("Parameters")
_HINTS = {
    Reason.IDEMPOTENCY_KEY_REQUIRED: "Add --key with a value that stays the same when you retry the call.",
    Reason.PREVIEW_REQUIRED: "Run the call with --preview, then repeat it with the --preview-token that is printed.",
    Reason.APPROVAL_REQUIRED: "`toolmesh approvals approve TICKET` approves it; then repeat the call with --ticket.",
    Reason.TOOL_NOT_FOUND: "`toolmesh tools list` lists the tools.",
    Reason.TOKEN_EXPIRED: "`toolmesh token mint` mints a new token with the operator's certificate.",
    Reason.UNAUTHENTICATED: "Add --token, or --token-file to the context; operators mint one: `toolmesh token mint`.",
}


def no_mesh_error(message: str, advice: str) -> ToolmeshError:
    """Return the error of a command that finds no mesh."""
    failure = error_for_reason(Reason.SERVICE_UNAVAILABLE, message=message, answered=False).failure
    return error_from_failure(dataclasses.replace(failure, resolution=advice))


def report_errors(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Print a ToolmeshError of a command, in the form that `as_json` selects, and exit with its code."""

    @wraps(command)
    def run(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        try:
            command(*arguments, **options)
        except ToolmeshError as error:
            print_error(error, as_json=bool(options.get("as_json")))
            raise typer.Exit(exit_code(error)) from None

    return run


def report_unexpected(error: Exception) -> None:
    """Print an unexpected exception as one line on stderr; raise it again if TOOLMESH_DEBUG is set."""
    if os.environ.get("TOOLMESH_DEBUG"):
        raise error
    sys.stderr.write(f"toolmesh failed: {type(error).__name__}: {error} (set TOOLMESH_DEBUG=1 for a traceback)\n")


def print_error(error: ToolmeshError, *, as_json: bool) -> None:
    """Print an error: the whole envelope to stdout as JSON, or a summary to stderr."""
    if as_json:
        output.print_json({"error": error.to_dict()})
        return
    console = output.err()
    if _is_no_mesh(error):
        console.print(output.text(error.message))
        console.print(output.text(error.resolution))
        return
    console.print(output.text((error.reason.name, "bold red"), f" ({error.code}): {error.message}"))
    for violation in error.violations:
        console.print(output.text(f"  {violation.path or '/'}: {violation.message} [{violation.rule}]"))
    for name, value in error.metadata.items():
        console.print(output.text((f"  {name}: {value}", "dim")))
    for advice in _advice(error):
        console.print(output.text(f"  {advice}"))
    references = [
        f"{name} {value}" for name, value in (("trace", error.trace_id), ("invocation", error.invocation_id)) if value
    ]
    if error.attempts > 1:
        references.append(f"after {error.attempts} attempts")
    if references:
        console.print(output.text(("  " + " · ".join(references), "dim")))


def _is_no_mesh(error: ToolmeshError) -> bool:
    # No call was made, so the error has neither a code nor a trace.
    return exit_code(error) == UNREACHABLE and not error.trace_id


def _advice(error: ToolmeshError) -> list[str]:
    if exit_code(error) == UNREACHABLE:
        return ["Is the mesh up? `toolmesh doctor` checks it; `toolmesh up` starts one here."]
    delay = f"Retry after {round(error.retry_after, 3):g} s." if error.retry_after else ""
    return [advice for advice in (error.resolution, delay, _HINTS.get(error.reason, "")) if advice]
