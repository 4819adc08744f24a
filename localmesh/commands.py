"""The commands that the local mesh adds to the `toolmesh` command line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from toolmesh_sdk.cli.commands.tools.logs import print_tool_logs
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options

from localmesh.exit_codes import FAILED, WRONG_STATE
from localmesh.process import background
from localmesh.process.orphans import age_seconds
from localmesh.settings import state_path
from localmesh.state.state import State, StateError, open_state, runner_pid, take_lock
from localmesh.view import logs as logview

StateOption = Annotated[Path | None, typer.Option("--state", help="The state folder.", show_default="TOOLMESH_STATE")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Adds up, down, status, logs and reset."""
    for command in (up, down, status, logs, reset):
        app.command()(command)


def up(
    state: StateOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return once the mesh is ready; it keeps running.")] = False,
    as_json: JsonOption = False,
    composition: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Start the whole mesh on this machine."""
    _warn_of_unknown_variables()
    arguments = [f"--state={state_path(state)}", f"--already={age_seconds(os.getpid()):.3f}"]
    arguments += [f"--composition={composition}"] if composition else []
    if detach:
        raise typer.Exit(background.run(_state(state), arguments, as_json=as_json))
    arguments += ["--json"] if as_json else []
    # The runner replaces this process: it stays small whatever the command line has loaded, and Ctrl-C reaches it.
    os.execv(sys.executable, [*background.RUNNER, *arguments])  # noqa: S606


def down(state: StateOption = None, as_json: JsonOption = False) -> None:
    """Stop the mesh."""
    place = State(state_path(state))
    pid = runner_pid(place)
    if pid is not None and not background.stop(place, pid):
        _say(as_json, {"stopped": False, "runner_pid": pid}, f"pid {pid} did not stop")
        raise typer.Exit(FAILED)
    _say(
        as_json,
        {"stopped": pid is not None, "state": str(place.path)},
        f"nothing runs in {place.path}" if pid is None else f"stopped (pid {pid})",
    )


def status(state: StateOption = None, as_json: JsonOption = False) -> None:
    """Show the parts and their addresses."""
    from localmesh.view import status as statusview

    place = State(state_path(state))
    pid = runner_pid(place)
    document = place.runtime()
    if pid is None or not document:
        message = f"nothing runs in {place.path}" if pid is None else f"pid {pid} is just starting in {place.path}"
        _say(as_json, {"running": False, "state": str(place.path)}, message)
        raise typer.Exit(WRONG_STATE)
    current = asyncio.run(statusview.current(document, place))
    _say(as_json, current, None if as_json else statusview.table(current))


@report_errors
@add_target_options()
def logs(
    part: Annotated[str | None, typer.Argument(help="A part, such as executor; all of them if none is named.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep showing what is written.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines, or calls.")] = 50,
    tool: Annotated[str, typer.Option(help="Show what calls of this tool printed, instead of a part's log.")] = "",
    invocation: Annotated[str, typer.Option(help="Show what this invocation printed.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show the logs of the parts, or what a tool printed.

    \b
    Example:
      toolmesh logs --tool acme.resize --invocation 01a2b3
    """
    if tool or invocation:
        print_tool_logs(target, tool, invocation=invocation, number=max(lines, 1), as_json=as_json)
        return
    place = State(state_path(target.state))
    names = logview.parts(place)
    if part is not None and part not in names:
        known = ", ".join(names) or "none"
        raise typer.BadParameter(f"no part called {part} has written anything; there are: {known}")
    chosen = [part] if part else names
    try:
        for name, line in logview.read(place, chosen, lines, follow=follow):
            typer.echo(_log_line(name, line, as_json=as_json, prefixed=part is None))
    except KeyboardInterrupt:
        return


def reset(
    state: StateOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the state: databases, keys, logs."""
    place = State(state_path(state))
    if not place.marker.exists():
        _say(as_json, {"deleted": False, "state": str(place.path)}, f"{place.path} holds no state")
        return
    if not yes:
        typer.confirm(f"Delete {place.path} with its databases, keys and logs?", abort=True)
    lock = take_lock(place)
    if lock is None:
        _say(
            as_json, {"deleted": False, "runner_pid": runner_pid(place)}, "the mesh runs; stop it with `toolmesh down`"
        )
        raise typer.Exit(WRONG_STATE)
    from localmesh.parts.cluster import choose_folder
    from localmesh.process.child import RunAs

    shutil.rmtree(choose_folder(place.path, RunAs.NOBODY), ignore_errors=True)
    _clear(place.path)
    _say(as_json, {"deleted": True, "state": str(place.path)}, f"deleted {place.path}")


def _clear(folder: Path) -> None:
    """Deletes the folder's content, and the folder unless it is a symlink or a mount point."""
    for entry in list(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _warn_of_unknown_variables() -> None:
    from localmesh.unknown_variables import find_unknown_variables  # may load what the runner must not carry

    for name in find_unknown_variables(os.environ):
        typer.echo(f"{name} is not a setting of a local mesh, nor of anything in it; it is ignored", err=True)


def _state(path: Path | None) -> State:
    try:
        return open_state(state_path(path))
    except StateError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(FAILED) from error


def _say(as_json: bool, document: dict[str, Any], message: str | None) -> None:
    if as_json:
        typer.echo(json.dumps(document))
    elif message is not None:
        typer.echo(message)


def _log_line(name: str, line: str, *, as_json: bool, prefixed: bool) -> str:
    if as_json:
        return json.dumps({"part": name, "line": line})
    return f"{name:<9} | {line}" if prefixed else line
