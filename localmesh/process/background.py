"""Starts a detached runner and stops it again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import typer

from localmesh.exit_codes import FAILED, OK
from localmesh.process.orphans import is_running
from localmesh.state.files import rotate
from localmesh.state.state import State, runner_pid
from localmesh.view.progress import Event, event_from_line, report_to_terminal

# Longer than all parts together may take to stop.
STOP_SECONDS = 90.0
# Without the folder that the person happens to be in: a `services` or a `secrets.py` there would be taken for ours.
RUNNER = (sys.executable, "-P", "-m", "localmesh")


def run(state: State, arguments: Sequence[str], *, as_json: bool) -> int:
    """Starts a runner, shows its progress, and returns 0 when the mesh is ready or the code with which the runner
    gave up."""
    receiving, sending = os.pipe()
    runner = _start(state, arguments, sending)
    os.close(sending)
    show = report_to_terminal(sys.stderr if as_json else sys.stdout)
    with os.fdopen(receiving, "rb") as events:
        try:
            for line in events:
                event = event_from_line(line)
                if event.kind == "up":
                    typer.echo(json.dumps(event.document)) if as_json else show(event)
                    return OK
                show(event)
        except KeyboardInterrupt:
            runner.send_signal(signal.SIGTERM)
    code = runner.wait()
    if code < 0:
        show(Event("refused", text=f"the runner was killed; see {state.log_file('runner')}"))
    return code if code > 0 else FAILED


def stop(state: State, pid: int) -> bool:
    """Asks the runner to stop and waits until its lock is free and it has ended. A runner that does not end in time
    is killed with its parts."""
    for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, 10.0)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return True
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if runner_pid(state) != pid and not is_running(pid):
                return True
            time.sleep(0.05)
    return False


def _start(state: State, arguments: Sequence[str], events: int) -> subprocess.Popen[bytes]:
    rotate(state.log_file("runner"))
    log = os.open(state.log_file("runner"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [*RUNNER, *arguments, f"--events={events}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[events],
            start_new_session=True,
        )
    finally:
        os.close(log)
