"""Hands requests to restart a part from a command to the runner: a file of the part's name, then SIGUSR1."""

from __future__ import annotations

import os
import signal

from localmesh.state.files import write_private
from localmesh.state.state import State


def request_restart(state: State, part: str, runner: int) -> None:
    """Asks the runner to restart a part."""
    write_private(state.restart_requests / part, b"")
    os.kill(runner, signal.SIGUSR1)


def take_requests(state: State) -> list[str]:
    """Returns the parts that commands want restarted, and forgets the requests."""
    names = []
    for request in sorted(state.restart_requests.glob("[a-z]*")):
        request.unlink(missing_ok=True)
        names.append(request.name)
    return names
