"""ErrorMapping of commands: a few lines that help, or the envelope for a machine, and always the right exit code."""

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
from toolmesh_sdk.errors import ToolmeshError, error_from, error_of

Parameters = ParamSpec("Parameters")
_HINTS = {
    Reason.IDEMPOTENCY_KEY_REQUIRED: "Add --key with a value that stays the same when you repeat the call.",
    Reason.PREVIEW_REQUIRED: "Add --preview first; then repeat the call with the --preview-token that it prints.",
    Reason.TOOL_NOT_FOUND: "`toolmesh tools list` shows what there is.",
    Reason.TOKEN_EXPIRED: "`toolmesh token mint` makes a new one on a local mesh.",
}


def no_mesh(message: str, advice: str) -> ToolmeshError:
    """Return the failure of a command that found no mesh to talk to."""
    failure = error_of(Reason.SERVICE_UNAVAILABLE, message=message, answered=False).failure
    return error_from(dataclasses.replace(failure, resolution=advice))


def reported(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Turn a ToolmeshError of a command into its message and exit code; `as_json` of the command decides the form."""

    @wraps(command)
    def run(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        try:
            command(*arguments, **options)
        except ToolmeshError as error:
            report(error, as_json=bool(options.get("as_json")))
            raise typer.Exit(exit_code(error)) from None

    return run


def report_unforeseen(error: Exception) -> None:
    """Print what nobody foresaw as one line on stderr; TOOLMESH_DEBUG=1 shows where it came from instead."""
    if os.environ.get("TOOLMESH_DEBUG"):
        raise error
    sys.stderr.write(f"toolmesh failed: {type(error).__name__}: {error} (TOOLMESH_DEBUG=1 shows more)\n")


def report(error: ToolmeshError, *, as_json: bool) -> None:
    """Print a failure: the envelope to stdout for a machine, the gist to stderr for a person."""
    if as_json:
        output.print_json({"error": error.to_dict()})
        return
    console = output.err()
    if _found_no_mesh(error):
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
    marks = [
        f"{name} {value}" for name, value in (("trace", error.trace_id), ("invocation", error.invocation_id)) if value
    ]
    if error.attempts > 1:
        marks.append(f"after {error.attempts} attempts")
    if marks:
        console.print(output.text(("  " + " · ".join(marks), "dim")))


def _found_no_mesh(error: ToolmeshError) -> bool:
    # Nothing was called, so there is neither a code to look up nor a trace to quote.
    return exit_code(error) == UNREACHABLE and not error.trace_id


def _advice(error: ToolmeshError) -> list[str]:
    if exit_code(error) == UNREACHABLE:
        return ["Is the mesh up? `toolmesh doctor` looks; `toolmesh up` starts one here."]
    return [advice for advice in (error.resolution, _HINTS.get(error.reason, "")) if advice]
