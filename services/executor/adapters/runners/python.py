"""Runs functions of tool packs, in warm workers where the tool sees no volumes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from libs.common.errors import MeshError
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.entry_point_resolver import (
    EntryPointResolver,
    ResolvedEntryPoint,
    sandbox_label,
)
from services.executor.adapters.runners.environment import RunnerEnvironment
from services.executor.adapters.runners.middleware import process_starts
from services.executor.adapters.runners.one_shot import forecast_from, report_answer, result_from, run_one_shot
from services.executor.adapters.runners.packs.entry_points import parse_function
from services.executor.adapters.runners.sandbox_plan import (
    PACKS,
    WORKER,
    WORKER_ARGV,
    cpu_limit_seconds,
    path_inside,
    plan_for,
)
from services.executor.adapters.runners.worker.answer import (
    MalformedAnswerError,
    ToolAnswer,
    log_failure,
    parse_answer,
    process_lost_error,
    unreadable_result_error,
)
from services.executor.adapters.runners.worker.frames import FrameError
from services.executor.adapters.runners.worker.output import OutputCollector
from services.executor.adapters.runners.worker.pool import WorkerKey, WorkerPool
from services.executor.adapters.runners.worker.worker import Worker, WorkerBrokenError, WorkerGoneError
from services.executor.adapters.runners.workspace.workspace import Workspace
from services.executor.adapters.sandbox.egress.proxy import refusal_error as egress_error
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.domain import errors
from services.executor.domain.model import RunRequest, RunResult
from services.executor.domain.tool import Tool

# Maximum size of an answer beside its result: 1000 effects and 1000 expectations of 512 characters, 4 bytes each.
_NOTES_BYTES = 5 << 20

LoadMessage = Mapping[str, Any]
"""The first message to a worker: import paths, module and function."""
PythonEntryPoint = ResolvedEntryPoint[LoadMessage]


class PythonRunner:
    """Keeps separate workers per subject and tool version. A tool that sees volumes gets a new worker for each call."""

    def __init__(
        self, environment: RunnerEnvironment, pool: WorkerPool, log: Log, *, output_bytes: int, lifetime_calls: int
    ) -> None:
        self._environment = environment
        self._pool = pool
        self._log = log
        self._output_bytes = output_bytes
        self._lifetime_calls = lifetime_calls
        self._entry_points = EntryPointResolver(self._resolve)

    def sandbox_for(self, tool: Tool) -> str | None:
        """Return the sandbox and the digest of its code; None if the pack, module or a volume is missing here."""
        return self._entry_points.sandbox_name(tool)

    def runs_inline(self, tool: Tool) -> bool:
        """Return False: a process may take any time."""
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Run the function in a worker that serves only this subject, or tenant, and this tool version."""
        sandbox = self._environment.tiers.require(tool)
        entry_point = self._entry_points.require(tool)
        if tool.confinement.reads:
            call = _OneShotCall(self, tool, work, entry_point, sandbox)
            return await run_one_shot(self._environment.volumes, tool, work, self._log, call.execute)
        worker = await self._borrow_worker(tool, work, entry_point, sandbox)
        try:
            answer = await self.call_worker(worker, tool, work)
        except BaseException:
            await self._pool.discard(worker)
            raise
        if answer.ends_worker:
            await self._pool.discard(worker)
        else:
            self._pool.give_back(worker)
        report_answer(self._log, tool, work, answer)
        return forecast_from(answer) if work.preview else result_from(answer)

    def _resolve(self, tool: Tool) -> PythonEntryPoint | None:
        function = parse_function(tool.entry_point)
        pack = None if function is None else self._environment.packs.get(function.pack)
        if function is None or pack is None or not pack.has_module(function.module):
            return None
        if not self._environment.volumes.has_all(tool):
            return None
        message: LoadMessage = {
            "paths": [PACKS, path_inside(pack, pack.lib)] if pack.lib else [PACKS],
            "module": f"{pack.name}.{function.module}",
            "function": function.function,
        }
        label = sandbox_label(self._environment.tiers.name(tool), "python", pack.label)
        return ResolvedEntryPoint(message, label, pack)

    async def _borrow_worker(
        self, tool: Tool, work: RunRequest, entry_point: PythonEntryPoint, sandbox: Sandbox
    ) -> Worker:
        """Return a ready worker. An idle worker that ended is replaced, because no call had started in it."""
        # A caller without a tenant shares workers with no other subject.
        tenant = f"tenant {work.tenant}" if work.tenant else f"subject {work.subject}"
        subject = "" if tool.confinement.shares_workers else work.subject
        key = WorkerKey(tool.digest, tenant, sandbox.name, subject)
        while True:
            worker = await self._pool.take(key, lambda: self.start_worker(tool, entry_point, sandbox, Workspace()))
            is_new = worker.calls == 0
            try:
                await self.wait_ready(worker, tool, work)
            except WorkerGoneError as gone:
                await self._pool.discard(worker)
                if is_new:
                    raise self.worker_gone_error(gone, tool, work) from None
                continue
            except BaseException:
                await self._pool.discard(worker)
                raise
            process_starts.labels("python", "cold" if is_new else "warm").inc()
            return worker

    async def start_worker(
        self, tool: Tool, entry_point: PythonEntryPoint, sandbox: Sandbox, workspace: Workspace, *, calls: int = 0
    ) -> Worker:
        """Start a worker and send its load message. `calls` bounds its CPU time; 0 means the configured lifetime."""
        gate = await self._environment.open_egress(tool)
        plan = plan_for(
            tool,
            WORKER_ARGV,
            readable=[(self._environment.worker_code(), WORKER), *entry_point.binds, *workspace.readable],
            writable=workspace.writable,
            mount_namespace=workspace.mount_namespace,
            cpu_seconds=cpu_limit_seconds(tool, tool.own_limit) * (calls or self._lifetime_calls),
            egress_socket="" if gate is None else gate.path,
        )
        try:
            process = await sandbox.start(plan)
        except BaseException:
            if gate is not None:
                await gate.close()
            raise
        worker = Worker(process, tool.confinement.memory_bytes, gate)
        worker.load(entry_point.target)
        return worker

    async def wait_ready(self, worker: Worker, tool: Tool, work: RunRequest) -> None:
        """Wait until a worker can take this call. Raises WorkerGoneError, or EXECUTION_FAILED if loading fails."""
        try:
            await worker.ready()
        except WorkerBrokenError as broken:
            error = errors.tool_raised(broken.kind)
            log_failure(self._log, tool, work, error, broken.detail)
            raise error from None
        if work.preview and worker.gate is not None and not worker.previews:
            raise errors.preview_unknown()

    async def call_worker(self, worker: Worker, tool: Tool, work: RunRequest) -> ToolAnswer:
        """Send the call to a worker and return its answer. Raises the error of a worker that ended or broke a rule."""
        limit = self._output_bytes if tool.persists else min(self._output_bytes, tool.max_result_bytes)
        output = OutputCollector(work.invocation_id)
        try:
            frame = await worker.call(_request(tool, work, limit), limit + _NOTES_BYTES, output.add)
            answer = parse_answer(frame, work.invocation_id, limit)
        except FrameError as error:
            raise unreadable_result_error(error, limit) from None
        except MalformedAnswerError:
            raise errors.worker_lost() from None
        except WorkerGoneError as gone:
            output.fill(work.notes)
            output = OutputCollector(work.invocation_id)
            # A worker that served other calls may end with what their child processes wrote.
            raise self.worker_gone_error(gone, tool, work, is_first=worker.calls == 1) from None
        finally:
            output.fill(work.notes)
            violation = egress_error(worker.gate.take_refusals()) if worker.gate is not None else None
        if violation is not None:
            raise violation
        return answer

    def worker_gone_error(
        self, gone: WorkerGoneError, tool: Tool, work: RunRequest, *, is_first: bool = True
    ) -> MeshError:
        """Return the error of a worker that ended, and log its stderr if it served no other call."""
        error = process_lost_error(gone.ending, work)
        log_failure(self._log, tool, work, error, gone.ending.stderr_tail if is_first else "")
        return error


class _OneShotCall:
    """One call in a worker that serves no other call."""

    def __init__(
        self, runner: PythonRunner, tool: Tool, work: RunRequest, entry_point: PythonEntryPoint, sandbox: Sandbox
    ) -> None:
        self._runner, self._tool, self._work = runner, tool, work
        self._entry_point, self._sandbox = entry_point, sandbox

    async def execute(self, workspace: Workspace) -> ToolAnswer:
        """Start the worker, call it and end it."""
        worker = await self._runner.start_worker(self._tool, self._entry_point, self._sandbox, workspace, calls=1)
        process_starts.labels("python", "cold").inc()
        try:
            return await workspace.run_watched(worker.end, self._call(worker))
        finally:
            await asyncio.shield(worker.end())

    async def _call(self, worker: Worker) -> ToolAnswer:
        try:
            await self._runner.wait_ready(worker, self._tool, self._work)
        except WorkerGoneError as gone:
            raise self._runner.worker_gone_error(gone, self._tool, self._work) from None
        return await self._runner.call_worker(worker, self._tool, self._work)


def _request(tool: Tool, work: RunRequest, limit: int) -> Mapping[str, Any]:
    return {
        "id": work.invocation_id,
        "key": work.idempotency_key,
        "arguments": work.arguments,
        "seconds": work.seconds,
        "preview": work.preview,
        "cpu": cpu_limit_seconds(tool, work.seconds),
        "limit": limit,
    }
