"""`toolmesh env`: prints what a shell needs to reach the local mesh."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import typer

from localmesh.exit_codes import WRONG_STATE
from localmesh.options import JsonOption, StateOption, print_outcome
from localmesh.settings import state_path
from localmesh.state.state import State, runner_pid


def env(state: StateOption = None, as_json: JsonOption = False) -> None:
    """Print the variables of the local mesh for a shell.

    TOOLMESH_URL and TOOLMESH_TOKEN, the PATH where it lacks this command, and TOOLMESH_STATE where it is not the usual
    folder.

    \b
    Example:
      eval "$(toolmesh env)"
    """
    place = State(state_path(state))
    document = place.runtime()
    if runner_pid(place) is None or not document:
        typer.echo(f"nothing runs in {place.path}; `toolmesh up` starts a mesh there", err=True)
        raise typer.Exit(WRONG_STATE)
    variables = {"TOOLMESH_URL": document["gateway"]["url"], **_token(place), **_path(), **_state(place)}
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
    print_outcome(variables, exports, as_json=as_json)


def _token(state: State) -> dict[str, str]:
    try:
        return {"TOOLMESH_TOKEN": state.token_file.read_text().strip()}
    except FileNotFoundError:
        typer.echo("there is no token: the mesh is still starting, or could not mint one", err=True)
        return {}


def _path() -> dict[str, str]:
    folder, found = Path(sys.executable).parent, shutil.which("toolmesh")
    if found and Path(found).parent == folder:
        return {}
    return {"PATH": f"{folder}:{os.environ.get('PATH', '')}"}


def _state(state: State) -> dict[str, str]:
    usual = Path("~/.local/state/toolmesh").expanduser().absolute()
    return {} if state.path == usual else {"TOOLMESH_STATE": str(state.path)}
