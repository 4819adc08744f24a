"""`toolmesh restart`: asks the runner for a new process of one part, and waits until it is ready."""

from __future__ import annotations

import time
from difflib import get_close_matches
from typing import Annotated

import typer

from localmesh.exit_codes import FAILED, WRONG_STATE
from localmesh.options import JsonOption, StateOption, print_outcome
from localmesh.settings import state_path
from localmesh.state.restart_requests import request_restart
from localmesh.state.state import State, runner_pid

POLL_SECONDS = 0.05


def restart(
    part: Annotated[str, typer.Argument(metavar="PART", help="A part of `toolmesh status`, such as executor.")],
    state: StateOption = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds until it must be ready again.")] = 120.0,
    as_json: JsonOption = False,
) -> None:
    """Restart one part of the local mesh.

    It ends its running calls first. It reads its keys and certificates again; settings stay those of `up`.

    \b
    Examples:
      toolmesh restart executor
      toolmesh restart envoy --timeout 30
    """
    place = State(state_path(state))
    runner, pid = runner_pid(place), _pid_of(place, part)
    if runner is None or pid is None:
        text = f"nothing runs in {place.path}" if runner is None else f"{part} is not running; `toolmesh logs {part}`"
        print_outcome({"restarted": False, "state": str(place.path)}, text, as_json=as_json)
        raise typer.Exit(WRONG_STATE)
    began = time.monotonic()
    request_restart(place, part, runner)
    while (new := _ready_pid(place, part)) in (None, pid):
        if time.monotonic() - began > timeout or runner_pid(place) != runner:
            print_outcome({"restarted": False, "part": part}, f"{part} is not ready again", as_json=as_json)
            raise typer.Exit(FAILED)
        time.sleep(POLL_SECONDS)
    seconds = round(time.monotonic() - began, 3)
    text = f"{part} restarted in {seconds:.1f} s (pid {new})"
    print_outcome({"restarted": True, "part": part, "pid": new, "seconds": seconds}, text, as_json=as_json)


def _pid_of(state: State, part: str) -> int | None:
    entries = {entry["name"]: entry for entry in state.runtime().get("services", ())}
    if entries and part not in entries:
        similar = get_close_matches(part, entries, n=1)
        advice = f"did you mean {similar[0]}?" if similar else f"there are: {', '.join(entries)}"
        raise typer.BadParameter(f"no part is called {part}; {advice}", param_hint="PART")
    return entries[part]["pid"] if entries else None


def _ready_pid(state: State, part: str) -> int | None:
    ready = [entry["pid"] for entry in state.runtime().get("services", ()) if entry["name"] == part and entry["ready"]]
    return ready[0] if ready else None
