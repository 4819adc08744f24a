"""Runs functions of tool packs, in warm workers where the tool sees no volumes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from libs.common.entry_points import parse_function
from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.channel.cancellation import CancelGrace, StopSteps, run_cancelable
from services.executor.adapters.runners.channel.early_frames import CallFrames
from services.executor.adapters.runners.channel.event_limits import PARTIAL_BYTES
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
from services.executor.adapters.runners.one_shot import forecast_from, report_answer, result_from, run_one_shot
from services.executor.adapters.runners.sandbox_plan import (
    WORKER,
    WORKER_ARGV,
    cpu_limit_seconds,
    import_paths,
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
from services.executor.adapters.secrets.call_secrets import CallSecrets, read_call_secrets
from services.executor.domain import errors, run_errors
from services.executor.domain.ports import SecretStore
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.run_channel import RunChannel
from services.executor.domain.tool import Tool

# Maximum size of an answer beside its result: 1000 effects and 1000 expectations of 512 characters, 4 bytes each.
_NOTES_BYTES = 5 << 20

LoadMessage = Mapping[str, Any]
"""The first message to a worker: import paths, module and function."""
PythonEntryPoint = ResolvedEntryPoint[LoadMessage]


class PythonRunner:
    """Keeps separate workers per subject and tool version. A tool that sees volumes gets a new worker for each call."""

    def __init__(
        self,
        environment: RunnerEnvironment,
        pool: WorkerPool[Worker],
        secrets: SecretStore,
        log: Log,
        *,
        output_bytes: int,
        lifetime_calls: int,
        cancel_grace: CancelGrace,
        state_bytes: int,
    ) -> None:
        self._environment = environment
        self._pool = pool
        self._secrets = secrets
        self._log = log
        self._output_bytes = output_bytes
        self._lifetime_calls = lifetime_calls
        self._cancel_grace, self._state_bytes = cancel_grace, state_bytes
        self._entry_points = EntryPointResolver(self._resolve, lambda: environment.revision)

    def sandbox_for(self, tool: Tool) -> str | None:
        """Return the sandbox and the digest of its code; None if the pack, module or a volume is missing here."""
        return self._entry_points.sandbox_name(tool)

    def missing_for(self, tool: Tool) -> str:
        """Return the pack, module or volume that is missing here."""
        return self._entry_points.missing_for(tool)

    def runs_inline(self, tool: Tool) -> bool:
        """Return False: a process may take any time."""
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Run the function in a worker that serves only this subject, or tenant, and this tool version."""
        sandbox = self._environment.tiers.require(tool)
        entry_point = self._entry_points.require(tool, work.code)
        secrets = await read_call_secrets(tool, work.tenant, self._secrets)
        if tool.confinement.reads:
            call = _OneShotCall(self, tool, work, entry_point, sandbox, secrets)
            return await run_one_shot(self._environment.volumes, tool, work, self._log, call.execute)
        worker = await self._borrow_worker(tool, work, entry_point, sandbox, secrets)
        try:
            seconds = begin_call(worker, work)
        except BaseException:
            self._pool.give_back(worker)
            raise
        try:
            answer = await self.call_worker(worker, tool, work, seconds, secrets)
        except BaseException:
            await self._pool.discard(worker)
            raise
        if answer.ends_worker:
            await self._pool.discard(worker)
        else:
            self._pool.give_back(worker)
        report_answer(self._log, tool, work, answer)
        return forecast_from(answer) if work.preview else result_from(answer)

    def _resolve(self, tool: Tool) -> PythonEntryPoint | str:
        function = parse_function(tool.entry_point)
        if function is None:
            return "its entry point is not pack/module:function"
        pack = self._environment.packs.get(function.pack)
        if pack is None:
            return missing_pack(function.pack)
        if not pack.has_module(function.module):
            return f"the tool pack {pack.name} that is loaded here has no module {function.module}"
        if missing := self._environment.volumes.missing_for(tool):
            return missing_volumes(missing)
        message: LoadMessage = {
            "paths": import_paths(pack),
            "module": f"{pack.name}.{function.module}",
            "function": function.function,
        }
        label = sandbox_label(self._environment.tiers.name(tool), "python", pack.label)
        return ResolvedEntryPoint(message, label, pack)

    async def _borrow_worker(
        self, tool: Tool, work: RunRequest, entry_point: PythonEntryPoint, sandbox: Sandbox, secrets: CallSecrets
    ) -> Worker:
        """Return a ready worker. An idle worker that ended is replaced, because no call had started in it."""
        # A caller without a tenant shares workers with no other subject.
        tenant = f"tenant {work.tenant}" if work.tenant else f"subject {work.subject}"
        subject = "" if tool.confinement.shares_workers else work.subject
        code = "" if entry_point.pack is None else entry_point.pack.digest
        key = WorkerKey(tool.digest, tenant, sandbox.name, subject, code, secrets.fingerprint)
        while True:
            try:
                worker = await self._pool.take(key, partial(self._start_ready, tool, entry_point, sandbox))
            except (WorkerBrokenError, WorkerGoneError) as failure:
                raise self.load_error(failure, tool, work) from None
            is_new = worker.calls == 0
            try:
                await worker.ready()
            except WorkerGoneError:
                await self._pool.discard(worker)
                continue
            except BaseException:
                await self._pool.discard(worker)
                raise
            process_starts.labels("python", "cold" if is_new else "warm").inc()
            return worker

    async def _start_ready(self, tool: Tool, entry_point: PythonEntryPoint, sandbox: Sandbox) -> Worker:
        """Start a worker of the pool and wait until it has loaded the tool. Raises like `Worker.ready`."""
        worker = await self.start_worker(tool, entry_point, sandbox, Workspace())
        try:
            await worker.ready()
        except BaseException:
            await asyncio.shield(worker.end())
            raise
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
        worker = Worker(process, tool.confinement.memory_bytes, gate, entry_point.pack)
        worker.load(entry_point.target)
        return worker

    def load_error(self, failure: WorkerBrokenError | WorkerGoneError, tool: Tool, work: RunRequest) -> MeshError:
        """Return the error of a worker that did not load the tool, and log the cause.

        It counts as a run of the tool, unless the sandbox itself could not be created.
        """
        if isinstance(failure, WorkerGoneError):
            error, detail = process_lost_error(failure.ending, work), failure.ending.stderr_tail
        else:
            error, detail = run_errors.tool_raised(failure.kind), failure.detail
        if error.reason is not Reason.SANDBOX_UNAVAILABLE:
            work.begin()
        log_failure(self._log, tool, work, error, detail)
        return error

    async def call_worker(
        self, worker: Worker, tool: Tool, work: RunRequest, seconds: float, secrets: CallSecrets
    ) -> ToolAnswer:
        """Send the call to a ready worker and return its answer. Raises the error of one that ended or broke a rule.

        Raises INVOCATION_CANCELED for one that was canceled.
        """
        if work.channel is not None and work.channel.canceled.done():
            raise errors.canceled()
        steps = StopSteps(worker.request_stop, worker.terminate, worker.end)
        run = self._call_worker(worker, tool, work, seconds, secrets)
        return await run_cancelable(run, work.channel, tool, steps, self._cancel_grace)

    def _reports(self, channel: RunChannel, worker: Worker, tool: Tool, work: RunRequest) -> ToolReports:
        return ToolReports(channel, tool, work, worker.send, self._log, state_bytes=self._state_bytes)

    async def _call_worker(
        self, worker: Worker, tool: Tool, work: RunRequest, seconds: float, secrets: CallSecrets
    ) -> ToolAnswer:
        limit = self._output_bytes if tool.persists else min(self._output_bytes, tool.max_result_bytes)
        output, channel = OutputCollector(work.invocation_id, secrets.remove_from_text), work.channel
        reports = None if channel is None else self._reports(channel, worker, tool, work)
        early = CallFrames(work.invocation_id, output, reports, secrets)
        resume_state = None if channel is None else channel.resume_state
        try:
            request = _request(tool, work, seconds, limit, self._state_bytes, secrets)
            share = self._environment.heavy_work.share_of(work)
            frame = await worker.call(request, limit + _NOTES_BYTES, early, share, resume_state, secrets.remove_from)
            answer = parse_answer(frame, work.invocation_id, limit)
            answer = replace(answer, detail=secrets.remove_from_text(answer.detail))
        except FrameError as error:
            raise unreadable_result_error(error, limit) from None
        except MalformedAnswerError:
            raise run_errors.worker_lost() from None
        except WorkerGoneError as gone:
            output.fill(work.notes)
            output = OutputCollector(work.invocation_id, secrets.remove_from_text)
            lost = process_lost_error(gone.ending, work)
            # A worker that served other calls may end with what their child processes wrote.
            tail = secrets.remove_from_text(gone.ending.stderr_tail) if worker.calls == 1 else ""
            log_failure(self._log, tool, work, lost, tail)
            raise lost from None
        finally:
            if reports is not None:
                await reports.close()
            output.fill(work.notes)
            violation = egress_error(worker.gate.take_refusals()) if worker.gate is not None else None
        if violation is not None:
            raise violation
        return answer


class _OneShotCall:
    """One call in a worker that serves no other call."""

    def __init__(
        self,
        runner: PythonRunner,
        tool: Tool,
        work: RunRequest,
        entry_point: PythonEntryPoint,
        sandbox: Sandbox,
        secrets: CallSecrets,
    ) -> None:
        self._runner, self._tool, self._work = runner, tool, work
        self._entry_point, self._sandbox, self._secrets = entry_point, sandbox, secrets

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
            await worker.ready()
        except (WorkerBrokenError, WorkerGoneError) as failure:
            raise self._runner.load_error(failure, self._tool, self._work) from None
        seconds = begin_call(worker, self._work)
        return await self._runner.call_worker(worker, self._tool, self._work, seconds, self._secrets)


def begin_call(worker: Worker, work: RunRequest) -> float:
    """Start the time of the call that a worker gets next, and return it in seconds."""
    seconds = work.begin()
    if work.preview and worker.gate is not None and not worker.previews:
        raise run_errors.preview_unknown()
    return seconds


def _request(
    tool: Tool, work: RunRequest, seconds: float, limit: int, state_bytes: int, secrets: CallSecrets
) -> Mapping[str, Any]:
    request: dict[str, Any] = {
        "id": work.invocation_id,
        "key": work.idempotency_key,
        "arguments": work.arguments,
        "seconds": seconds,
        "preview": work.preview,
        "cpu": cpu_limit_seconds(tool, seconds),
        "limit": limit,
        "secrets": dict(secrets.values),
    }
    if work.channel is not None:
        resumes = work.channel.resume_state is not None
        request["channel"] = {"resumes": resumes, "partial_bytes": PARTIAL_BYTES, "state_bytes": state_bytes}
    return request
