"""Runs programs, each call in a new sandboxed process. No shell is involved."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from libs.common.entry_points import parse_command
from libs.common.errors import MeshError
from libs.common.json.jsonio import dump
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.channel.cancellation import CancelGrace, StopSteps, run_cancelable
from services.executor.adapters.runners.channel.event_lines import EventLines
from services.executor.adapters.runners.channel.tool_reports import ToolReports
from services.executor.adapters.runners.entry_point_resolver import (
    EntryPointResolver,
    ResolvedEntryPoint,
    missing_pack,
    missing_volumes,
    sandbox_label,
)
from services.executor.adapters.runners.environment import RunnerEnvironment
from services.executor.adapters.runners.middleware import process_starts
from services.executor.adapters.runners.one_shot import run_one_shot
from services.executor.adapters.runners.packs.argv import build_argv
from services.executor.adapters.runners.sandbox_plan import PYTHON, cpu_limit_seconds, path_inside, plan_for
from services.executor.adapters.runners.worker.answer import (
    ToolAnswer,
    log_failure,
    process_lost_error,
    split_lines,
    unreadable_result_error,
)
from services.executor.adapters.runners.worker.frames import FrameError, read_json
from services.executor.adapters.runners.workspace.workspace import Workspace
from services.executor.adapters.sandbox.egress.listener import EgressListener
from services.executor.adapters.sandbox.egress.proxy import refusal_error as egress_error
from services.executor.adapters.sandbox.egress.proxy_bridge import bridged_command
from services.executor.adapters.sandbox.exit_report import error_for_exit
from services.executor.adapters.sandbox.port import (
    EVENTS_DESCRIPTOR,
    INPUT_DESCRIPTOR,
    ExitKind,
    ExitReport,
    Plan,
    SandboxedProcess,
)
from services.executor.domain import errors, run_errors
from services.executor.domain.run import LogSource, RunRequest, RunResult
from services.executor.domain.tool import Tool

_CHUNK_BYTES = 64 * 1024
# A program that left a process behind must not hold its answer back.
_LAST_EVENTS_SECONDS = 1.0
_DESCRIPTORS = {"TOOLMESH_EVENTS_FD": str(EVENTS_DESCRIPTOR), "TOOLMESH_INPUT_FD": str(INPUT_DESCRIPTOR)}


@dataclass(frozen=True, slots=True)
class _Program:
    """A program as it is started inside the sandbox, and the templates of its arguments."""

    argv: tuple[str, ...]
    templates: tuple[str, ...]


class CommandRunner:
    """Passes the call's arguments to a program as JSON on stdin and reads its stdout as the result."""

    def __init__(
        self,
        environment: RunnerEnvironment,
        log: Log,
        *,
        output_bytes: int,
        cancel_grace: CancelGrace,
        state_bytes: int,
    ) -> None:
        self._environment = environment
        self._log = log
        self._output_bytes = output_bytes
        self._cancel_grace, self._state_bytes = cancel_grace, state_bytes
        self._entry_points = EntryPointResolver(self._resolve, lambda: environment.revision)

    def sandbox_for(self, tool: Tool) -> str | None:
        """Return the sandbox and its program; None if the program, its pack or a volume is missing here."""
        return self._entry_points.sandbox_name(tool)

    def missing_for(self, tool: Tool) -> str:
        """Return the program, pack or volume that is missing here."""
        return self._entry_points.missing_for(tool)

    def runs_inline(self, tool: Tool) -> bool:
        """Return False: a process may take any time."""
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Run the program once. Raises INJECTION_DETECTED before the start if an argument is not a safe value."""
        program = self._entry_points.require(tool, work.code)
        sandbox = self._environment.tiers.require(tool)
        if work.preview and tool.confinement.hosts:
            raise run_errors.preview_unknown()
        if work.channel is not None and work.channel.canceled.done():
            raise errors.canceled()
        argv = (*program.target.argv, *build_argv(program.target.templates, work.arguments))

        async def attempt(workspace: Workspace) -> ToolAnswer:
            gate = await self._environment.open_egress(tool)
            try:
                # The arguments are in its command line: from here on it may run, although its time begins later.
                work.launch()
                process = await sandbox.start(_plan(tool, work, program, argv, workspace, gate))
                process_starts.labels("command", "cold").inc()
                try:
                    work.begin()
                    return await workspace.run_watched(process.kill, self._run(process, tool, work, gate))
                finally:
                    ending = await asyncio.shield(process.kill())
                    work.notes.lines[:0] = split_lines(LogSource.STDERR, ending.stderr_tail)
            finally:
                if gate is not None:
                    await gate.close()

        return await run_one_shot(self._environment.volumes, tool, work, self._log, attempt)

    def _resolve(self, tool: Tool) -> ResolvedEntryPoint[_Program] | str:
        command = parse_command(tool.entry_point)
        if command is None:
            return "its entry point is not a program of /usr/bin, without a shell, or of a pack, and its arguments"
        if missing := self._environment.volumes.missing_for(tool):
            return missing_volumes(missing)
        sandbox = self._environment.tiers.name(tool)
        if not command.pack:
            if not Path(command.program).is_file():
                return f"there is no {command.program} on the executor's machine"
            label = sandbox_label(sandbox, "command", command.program)
            return ResolvedEntryPoint(_Program((command.program,), command.templates), label)
        pack = self._environment.packs.get(command.pack)
        if pack is None:
            return missing_pack(command.pack)
        if command.program not in pack.programs:
            return f"the tool pack {pack.name} that is loaded here offers no program {command.program}"
        path = path_inside(pack, command.program)
        # Every sandbox contains Python, at a path that depends on the machine, so scripts need no shebang line.
        argv = (*PYTHON, path) if path.endswith(".py") else (path,)
        label = sandbox_label(sandbox, "command", pack.label)
        return ResolvedEntryPoint(_Program(argv, command.templates), label, pack)

    async def _run(
        self, process: SandboxedProcess, tool: Tool, work: RunRequest, gate: EgressListener | None
    ) -> ToolAnswer:
        channel, pipes = work.channel, process.event_pipes
        if channel is None or pipes is None:
            return await self._read_answer(process, tool, work, gate)
        lines = EventLines(pipes, work.notes)
        lines.send_resume_state(channel.resume_state)
        reports = ToolReports(channel, tool, work, lines.send, self._log, state_bytes=self._state_bytes)
        reading = asyncio.create_task(lines.read(reports), name="tool-events")
        steps = StopSteps(lines.request_stop, process.terminate, process.kill)
        try:
            run = self._read_answer(process, tool, work, gate)
            answer = await run_cancelable(run, channel, tool, steps, self._cancel_grace)
            # The process has ended, so its events do.
            reports.end_rate()
            await reading
            return answer
        except MeshError:
            # What a program said before it failed or was stopped is often why. It has ended, too.
            reports.end_rate()
            await asyncio.wait([reading], timeout=_LAST_EVENTS_SECONDS)
            raise
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            await reports.close()

    async def _read_answer(
        self, process: SandboxedProcess, tool: Tool, work: RunRequest, gate: EgressListener | None
    ) -> ToolAnswer:
        limit = self._output_bytes if tool.persists else min(self._output_bytes, tool.max_result_bytes)
        feeding = asyncio.create_task(_write_stdin(process, dump(work.arguments)))
        try:
            output = await _read_stdout(process, limit)
            ending = await process.wait()
        finally:
            feeding.cancel()
        if gate is not None and (violation := egress_error(gate.take_refusals())):
            raise violation
        if ending.kind is not ExitKind.EXITED or ending.code != 0:
            raise self._process_error(ending, tool, work)
        try:
            share = self._environment.heavy_work.share_of(work)
            return ToolAnswer(await share.run_if_large(len(output), partial(read_json, output, limit)))
        except FrameError as error:
            raise unreadable_result_error(error, limit) from None

    def _process_error(self, ending: ExitReport, tool: Tool, work: RunRequest) -> MeshError:
        error = (
            process_lost_error(ending, work) if ending.kind is ExitKind.KILLED else error_for_exit(ending, work.seconds)
        )
        log_failure(self._log, tool, work, error, ending.stderr_tail)
        # The lines of standard error precede it, once the process has ended.
        work.notes.lines[:] = split_lines(LogSource.FAILURE, error.message)
        return error


def _plan(
    tool: Tool,
    work: RunRequest,
    program: ResolvedEntryPoint[_Program],
    argv: tuple[str, ...],
    workspace: Workspace,
    gate: EgressListener | None,
) -> Plan:
    return plan_for(
        tool,
        argv if gate is None else bridged_command(argv),
        readable=[*program.binds, *workspace.readable],
        writable=workspace.writable,
        mount_namespace=workspace.mount_namespace,
        cpu_seconds=cpu_limit_seconds(tool, work.seconds),
        egress_socket="" if gate is None else gate.path,
        has_events=work.channel is not None,
        environment={
            "TOOLMESH_INVOCATION": work.invocation_id,
            "TOOLMESH_IDEMPOTENCY_KEY": work.idempotency_key,
            "TOOLMESH_PREVIEW": "1" if work.preview else "",
            **(_DESCRIPTORS if work.channel is not None else {}),
        },
    )


async def _write_stdin(process: SandboxedProcess, payload: bytes) -> None:
    # A program may close stdin without reading it.
    with suppress(ConnectionError):
        process.stdin.write(payload)
        await process.stdin.drain()
        process.stdin.close()


async def _read_stdout(process: SandboxedProcess, limit: int) -> bytes:
    """Read all of stdout. Kills the process and raises RESULT_TOO_LARGE if it exceeds the limit."""
    output = bytearray()
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        output += chunk
        if len(output) > limit:
            await process.kill()
            raise errors.result_too_large(len(output), limit)
    return bytes(output)
