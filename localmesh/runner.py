"""The process that runs a mesh: takes the lock, starts the parts, waits for the signal to stop."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from localmesh import composition
from localmesh.composition import Mesh
from localmesh.exit_codes import FAILED, KILLED, OK, WRONG_STATE, WRONG_USAGE
from localmesh.parts.cluster import choose_user
from localmesh.ports import PortClaims, claim_ports, usual_ports
from localmesh.process.child import succeeds_in_fork
from localmesh.process.orphans import remember_children, wait_for_orphans
from localmesh.process.part import PartError
from localmesh.process.supervisor import Supervisor
from localmesh.scale import parse_scale
from localmesh.settings import SettingError, Settings, settings_from, state_path
from localmesh.state.disk import check_free_space
from localmesh.state.files import rotate, write_json
from localmesh.state.log_rotation import rotate_logs
from localmesh.state.pki import Pki
from localmesh.state.restart_requests import take_requests
from localmesh.state.runtime import runtime_document, static_runtime_fields, with_memory
from localmesh.state.secrets import read_secrets
from localmesh.state.state import State, StateError, open_state, runner_pid, take_lock
from localmesh.view.banner import local_token, render_banner
from localmesh.view.progress import Event, Report, report_to_file, report_to_pipe, report_to_terminal, without_raising
from localmesh.wheels import ProgramError


@dataclass(frozen=True)
class RunnerOptions:
    """The options of one run, from the command line."""

    state: Path
    composition: str
    scale: Mapping[str, int]
    began: float
    """When the person asked, on the clock of `time.monotonic`."""
    detached: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a mesh until SIGINT or SIGTERM and returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        scale = parse_scale(options.scale)
    except ValueError as error:
        _parser().error(str(error))
    order = RunnerOptions(
        state_path(options.state),
        options.composition,
        scale,
        time.monotonic() - options.already,
        options.events is not None,
    )
    report = without_raising(_report(options.events, as_json=options.json))
    if sys.platform != "linux":
        report(Event("refused", text="the local mesh needs Linux: it leans on namespaces, pidfds and death signals"))
        return FAILED
    try:
        return asyncio.run(_run(order, settings_from(os.environ), report))
    except KeyboardInterrupt:
        # Before there was anything to stop.
        return KILLED
    except SettingError as error:
        report(Event("refused", text=str(error)))
        return WRONG_USAGE
    except (StateError, ProgramError, ValueError, OSError) as error:
        report(Event("refused", text=str(error)))
        return FAILED


async def _run(order: RunnerOptions, settings: Settings, report: Report) -> int:
    state = open_state(order.state)
    lock = take_lock(state)
    if lock is None:
        report(Event("refused", text=_occupied(state)))
        return WRONG_STATE
    state.runtime_file.unlink(missing_ok=True)  # of a runner that was killed
    claims = PortClaims()
    try:
        await _await_orphans(state, report)
        if warning := check_free_space(state.path):
            report(Event("note", text=warning))
        claims = claim_ports(state, usual_ports(order.scale))
        _make_identities(state)
        mesh = Mesh(state, claims.numbers, read_secrets(state), Pki(state.pki), settings, choose_user())
        return await MeshRun(order, mesh, report).until_stopped()
    finally:
        state.runtime_file.unlink(missing_ok=True)
        claims.release()
        lock.release()


class MeshRun:
    """One run of one mesh, from the first part's start to the last part's end."""

    def __init__(self, order: RunnerOptions, mesh: Mesh, report: Report) -> None:
        self._order = order
        self._state = mesh.state
        self._max_token_lifetime = mesh.settings.max_token_lifetime
        self._report = report
        self._facts = static_runtime_fields(
            mesh, order.composition, datetime.now(UTC).isoformat(timespec="milliseconds")
        )
        self._ready_seconds: float | None = None
        self._stop = asyncio.Event()
        self._restarts: set[asyncio.Task[None]] = set()
        self._killed = False
        parts = composition.load(order.composition)(mesh)
        self._logs = [self._state.log_file(name) for name in ("runner", *(part.name for part in parts))]
        for log in self._logs[1:]:
            rotate(log)
        self._supervisor = Supervisor(parts, self._state.log_file, report, self._write_down)

    async def until_stopped(self) -> int:
        """Returns the exit code after every part has ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        loop.add_signal_handler(signal.SIGUSR1, self._on_restart)
        self._write_down()
        working = asyncio.create_task(self._start_and_show_banner())
        stopping = asyncio.create_task(self._stop.wait())
        tidying = asyncio.create_task(rotate_logs(self._logs))
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        failure = working.exception() if working.done() else None
        if failure is None:
            await stopping
        working.cancel()
        tidying.cancel()
        await asyncio.gather(working, tidying, return_exceptions=True)
        await self._supervisor.stop()
        if failure is not None and not isinstance(failure, PartError):
            raise failure
        return KILLED if self._killed else _code_of(failure)

    async def _start_and_show_banner(self) -> None:
        await self._supervisor.start()
        self._ready_seconds = round(time.monotonic() - self._order.began, 3)
        self._write_down()
        token, reason = await local_token(self._state, self._max_token_lifetime)
        document = with_memory(self._document())
        text = render_banner(document, reason, detached=self._order.detached)
        self._report(Event("up", text=text, document={**document, "token": token}))

    def _on_restart(self) -> None:
        for name in take_requests(self._state):
            restarting = asyncio.create_task(self._supervisor.restart(name))
            self._restarts.add(restarting)
            restarting.add_done_callback(self._restarts.discard)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._killed = True
            self._supervisor.kill()
        self._stop.set()

    def _document(self) -> dict[str, object]:
        return runtime_document(self._facts, self._supervisor.members.values(), self._ready_seconds)

    def _write_down(self) -> None:
        members = self._supervisor.members
        remember_children(self._state.children_file, {name: each.pid for name, each in members.items() if each.pid})
        write_json(self._state.runtime_file, self._document())


def _code_of(failure: PartError | None) -> int:
    if failure is None:
        return OK
    return WRONG_USAGE if failure.misled else FAILED


def _make_identities(state: State) -> None:
    def work() -> None:
        from localmesh.state.certificates import issue_certificates
        from localmesh.state.keys import ensure_secrets

        ensure_secrets(state)
        issue_certificates(state.pki)

    # In a fork, so that the cryptography library is never part of a process that stays.
    if not succeeds_in_fork(work):
        raise StateError(f"the keys and certificates could not be written to {state.path}")


async def _await_orphans(state: State, report: Report) -> None:
    names = await wait_for_orphans(state.children_file, seconds=15)
    if names:
        report(Event("note", text=f"waited for what a killed runner had left: {', '.join(names)}"))


def _occupied(state: State) -> str:
    address = state.runtime().get("gateway", {}).get("url", "still starting")
    return f"already running: pid {runner_pid(state)}, {address}, state {state.path}"


def _report(events: int | None, *, as_json: bool) -> Report:
    if events is not None:
        return _report_in_background(report_to_file(sys.stdout), without_raising(report_to_pipe(events)))
    if as_json:
        return _report_as_json(report_to_terminal(sys.stderr))
    return report_to_terminal(sys.stdout)


def _report_in_background(log: Report, waiting: Report) -> Report:
    def report(event: Event) -> None:
        waiting(event)
        # The banner holds a token, which must not be logged.
        log(event if event.kind != "up" else Event("note", text="the mesh is ready"))

    return report


def _report_as_json(progress: Report) -> Report:
    def report(event: Event) -> None:
        if event.kind == "up":
            sys.stdout.write(json.dumps(event.document) + "\n")
            sys.stdout.flush()
        else:
            progress(event)

    return report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m localmesh", description=__doc__)
    parser.add_argument("--state", type=Path, help="the state folder")
    parser.add_argument("--json", action="store_true", help="print the runtime document when ready")
    parser.add_argument("--events", type=int, help="a descriptor to send events to, for the command that waits")
    parser.add_argument("--scale", action="append", default=[], help="SERVICE=COUNT, repeatable")
    parser.add_argument("--already", type=float, default=0.0, help="seconds that had passed before this process")
    parser.add_argument("--composition", default=composition.DEFAULT, help="module:function that lists the parts")
    return parser
