"""The commands that the local mesh adds to the `toolmesh` command line."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from toolmesh_sdk.cli.commands.tools.logs import print_tool_logs
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options

from localmesh import secrets_command
from localmesh.backup.commands import backup, restore
from localmesh.cluster_backup import commands as cluster_backup
from localmesh.cluster_doctor.command import doctor
from localmesh.deploy import commands as deploy_commands
from localmesh.exit_codes import FAILED, WRONG_STATE
from localmesh.options import JsonOption, StateOption, print_outcome
from localmesh.process import background
from localmesh.process.orphans import age_seconds
from localmesh.restart import restart
from localmesh.settings import state_path
from localmesh.shell_environment import env
from localmesh.state.state import State, StateError, open_state, runner_pid, take_lock
from localmesh.upgrade.command import upgrade
from localmesh.view import logs as logview
from localmesh.view.log_lines import render_for_program, render_for_terminal


def register(app: typer.Typer) -> None:
    """Adds the commands of the local mesh, in the order of `--help`."""
    for command in (up, down, env, status, logs, restart, backup, restore, reset):
        app.command()(command)
    app.add_typer(secrets_command.app, name="secrets")
    app.add_typer(deploy_commands.app, name="deploy")


# Not among the commands of the jobs in a cluster, whose image has what jobs need.
for _command in (doctor, upgrade, cluster_backup.backup, cluster_backup.restore):
    deploy_commands.app.command()(_command)


def up(
    state: StateOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return once the mesh is ready; it keeps running.")] = False,
    scale: Annotated[
        list[str] | None,
        typer.Option("--scale", metavar="SERVICE=COUNT", help="Run several processes of a service; repeatable."),
    ] = None,
    as_json: JsonOption = False,
    composition: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Start the whole mesh on this machine.

    \b
    Examples:
      toolmesh up
      toolmesh up --detach --scale executor=2
    """
    _check_scale(scale or [])
    _warn_of_unknown_variables()
    arguments = [f"--state={state_path(state)}", f"--already={age_seconds(os.getpid()):.3f}"]
    arguments += [f"--scale={text}" for text in scale or []]
    arguments += [f"--composition={composition}"] if composition else []
    if detach:
        raise typer.Exit(background.run(_state(state), arguments, as_json=as_json))
    arguments += ["--json"] if as_json else []
    # The runner replaces this process: it stays small whatever the command line has loaded, and Ctrl-C reaches it.
    os.execv(sys.executable, [*background.RUNNER, *arguments])  # noqa: S606


def down(state: StateOption = None, as_json: JsonOption = False) -> None:
    """Stop the mesh.

    \b
    Example:
      toolmesh down
    """
    place = State(state_path(state))
    pid = runner_pid(place)
    if pid is not None and not background.stop(place, pid):
        print_outcome({"stopped": False, "runner_pid": pid}, f"pid {pid} did not stop", as_json=as_json)
        raise typer.Exit(FAILED)
    print_outcome(
        {"stopped": pid is not None, "state": str(place.path)},
        f"nothing runs in {place.path}" if pid is None else f"stopped (pid {pid})",
        as_json=as_json,
    )


def status(state: StateOption = None, as_json: JsonOption = False) -> None:
    """Show the parts and their addresses.

    \b
    Examples:
      toolmesh status
      toolmesh status --json
    """
    from localmesh.view import status as statusview

    place = State(state_path(state))
    pid = runner_pid(place)
    document = place.runtime()
    if pid is None or not document:
        message = f"nothing runs in {place.path}" if pid is None else f"pid {pid} is just starting in {place.path}"
        print_outcome({"running": False, "state": str(place.path)}, message, as_json=as_json)
        raise typer.Exit(WRONG_STATE)
    current = asyncio.run(statusview.current(document, place))
    print_outcome(current, None if as_json else statusview.table(current), as_json=as_json)


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

    Columns on a terminal; elsewhere, or with --json, one JSON object a line with the part's name.

    \b
    Examples:
      toolmesh logs executor --follow
      toolmesh logs -n 1000 --json | grep E3101
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
    render = render_for_terminal if sys.stdout.isatty() and not as_json else render_for_program
    try:
        for name, line in logview.read(place, chosen, lines, follow=follow):
            typer.echo(render(name, line))
    except KeyboardInterrupt:
        return


def reset(
    state: StateOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the state: databases, keys, logs.

    \b
    Example:
      toolmesh reset --state /tmp/trial --yes
    """
    place = State(state_path(state))
    if not place.marker.exists():
        print_outcome({"deleted": False, "state": str(place.path)}, f"{place.path} holds no state", as_json=as_json)
        return
    if not yes:
        typer.confirm(f"Delete {place.path} with its databases, keys and logs?", abort=True)
    lock = take_lock(place)
    if lock is None:
        print_outcome(
            {"deleted": False, "runner_pid": runner_pid(place)},
            "the mesh runs; stop it with `toolmesh down`",
            as_json=as_json,
        )
        raise typer.Exit(WRONG_STATE)
    from localmesh.state.clear import clear_state

    clear_state(place)
    print_outcome({"deleted": True, "state": str(place.path)}, f"deleted {place.path}", as_json=as_json)


def _check_scale(texts: list[str]) -> None:
    from localmesh.scale import parse_scale

    try:
        parse_scale(texts)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--scale") from None


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
