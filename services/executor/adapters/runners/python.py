"""Runs functions of tool packs, in warm workers where nothing speaks against it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from libs.common.errors import MeshError
from libs.common.telemetry.log import Log
from services.executor.adapters.runners import measures
from services.executor.adapters.runners.environment import Ground
from services.executor.adapters.runners.one_shot import forecast_of, ran_of, run_cold, said
from services.executor.adapters.runners.outcomes import lost, tell, unreadable
from services.executor.adapters.runners.packs.entry_points import Function, function_of
from services.executor.adapters.runners.packs.packs import Pack
from services.executor.adapters.runners.sandbox_plan import (
    PACKS,
    WORKER,
    WORKER_ARGV,
    inside,
    plan_of,
    processor_seconds,
)
from services.executor.adapters.runners.worker.answer import Answer, MalformedError, answer_of
from services.executor.adapters.runners.worker.frames import FrameError
from services.executor.adapters.runners.worker.pool import Key, Pool
from services.executor.adapters.runners.worker.worker import Worker, WorkerBrokenError, WorkerGoneError
from services.executor.adapters.runners.workspace.workspace import Workspace
from services.executor.adapters.sandbox.egress.proxy import error_of as refused
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.domain import errors
from services.executor.domain.model import RunRequest, RunResult
from services.executor.domain.tool import Tool

# What an answer says beside its result, at most: a thousand effects and as many expectations, each of 512 letters of four bytes.
_NOTES_BYTES = 5 << 20
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where a tool's function is, and the name of the sandbox that it runs in."""

    pack: Pack
    function: Function
    sandbox: str


class PythonRunner:
    """Gives every tenant workers of its own, for each version of a tool. A tool that sees volumes gets a fresh one for each call."""

    def __init__(self, ground: Ground, pool: Pool, log: Log, *, output_bytes: int, lifetime_calls: int) -> None:
        self._ground = ground
        self._pool = pool
        self._log = log
        self._output_bytes = output_bytes
        self._lifetime_calls = lifetime_calls
        self._spots: dict[str, _Spot | None] = {}

    def sandbox_for(self, tool: Tool) -> str | None:
        """Name the sandbox and the very code that runs in it; None if its pack, module or a volume is not here."""
        spot = self._spot(tool)
        return None if spot is None else spot.sandbox

    def runs_inline(self, tool: Tool) -> bool:
        """A process may take any time."""
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Answer a call, in a worker that only this tenant's calls to this version ever see."""
        spot, sandbox = self._spot(tool), self._ground.tiers.need(tool)
        if spot is None:
            raise errors.nothing_runs_it(tool.name)
        if tool.confinement.reads:
            attempt = _Attempt(self, tool, work, spot, sandbox)
            return await run_cold(self._ground.volumes, tool, work, self._log, attempt)
        worker = await self._borrow(tool, work, spot, sandbox)
        try:
            answer = await self.asked(worker, tool, work)
        except BaseException:
            await self._pool.discard(worker)
            raise
        if answer.ends_worker:
            await self._pool.discard(worker)
        else:
            self._pool.give_back(worker)
        said(self._log, tool, work, answer)
        return forecast_of(answer) if work.preview else ran_of(answer)

    def _spot(self, tool: Tool) -> _Spot | None:
        if tool.digest not in self._spots:
            if len(self._spots) >= _REMEMBERED:
                self._spots.clear()
            self._spots[tool.digest] = self._found(tool)
        return self._spots[tool.digest]

    def _found(self, tool: Tool) -> _Spot | None:
        function = function_of(tool.entry_point)
        pack = None if function is None else self._ground.packs.get(function.pack)
        if function is None or pack is None or not pack.has_module(function.module):
            return None
        if not self._ground.volumes.offers(tool):
            return None
        return _Spot(pack, function, f"{self._ground.tiers.name(tool)} python {pack.label}"[:255])

    async def _borrow(self, tool: Tool, work: RunRequest, spot: _Spot, sandbox: Sandbox) -> Worker:
        """Return a worker that is ready. One that went while it was idle is replaced: no call had begun in it."""
        # Whoever belongs to no tenant shares a worker with nobody.
        whose = f"tenant {work.tenant}" if work.tenant else f"subject {work.subject}"
        key = Key(tool.digest, whose, sandbox.name)
        while True:
            worker = await self._pool.take(key, lambda: self.started(tool, spot, sandbox, Workspace()))
            fresh = worker.calls == 0
            try:
                await self.prepared(worker, tool, work)
            except WorkerGoneError as gone:
                await self._pool.discard(worker)
                if fresh:
                    raise self.farewell(gone, tool, work) from None
                continue
            except BaseException:
                await self._pool.discard(worker)
                raise
            measures.starts.labels("python", "cold" if fresh else "warm").inc()
            return worker

    async def started(
        self, tool: Tool, spot: _Spot, sandbox: Sandbox, workspace: Workspace, *, calls: int = 0
    ) -> Worker:
        """Start a worker and tell it what to load. `calls` is how many it will answer at most; 0 for as many as any."""
        gate = await self._ground.way_out(tool)
        code = self._ground.worker_code()
        packs = [(code, WORKER), (str(spot.pack.folder), inside(spot.pack)), *workspace.readable]
        plan = plan_of(
            tool,
            WORKER_ARGV,
            readable=packs,
            writable=workspace.writable,
            cpu_seconds=processor_seconds(tool, tool.own_limit) * (calls or self._lifetime_calls),
            egress_socket="" if gate is None else gate.path,
        )
        try:
            confined = await sandbox.start(plan)
        except BaseException:
            if gate is not None:
                await gate.close()
            raise
        worker = Worker(confined, tool.confinement.memory_bytes, gate)
        libraries = [inside(spot.pack, spot.pack.lib)] if spot.pack.lib else []
        module = f"{spot.pack.name}.{spot.function.module}"
        worker.open({"paths": [PACKS, *libraries], "module": module, "function": spot.function.function})
        return worker

    async def prepared(self, worker: Worker, tool: Tool, work: RunRequest) -> None:
        """Wait until a worker can take this call. Raises WorkerGoneError, and EXECUTION_FAILED when it cannot load its function."""
        try:
            await worker.ready()
        except WorkerBrokenError as broken:
            error = errors.tool_raised(broken.kind)
            tell(self._log, tool, work, error, broken.detail)
            raise error from None
        if work.preview and worker.gate is not None and not worker.previews:
            raise errors.preview_unknown()

    async def asked(self, worker: Worker, tool: Tool, work: RunRequest) -> Answer:
        """Ask a worker and return its answer. Raises what ended the worker, where something did."""
        limit = self._output_bytes if tool.persists else min(self._output_bytes, tool.max_result_bytes)
        try:
            frame = await worker.ask(_request(tool, work, limit), limit + _NOTES_BYTES)
            answer = answer_of(frame, work.invocation_id, limit)
        except FrameError as error:
            raise unreadable(error, limit) from None
        except MalformedError:
            raise errors.worker_lost() from None
        except WorkerGoneError as gone:
            raise self.farewell(gone, tool, work) from None
        finally:
            violation = refused(worker.gate.take()) if worker.gate is not None else None
        if violation is not None:
            raise violation
        return answer

    def farewell(self, gone: WorkerGoneError, tool: Tool, work: RunRequest) -> MeshError:
        """Return why a worker is gone; what it complained of is in the log."""
        error = lost(gone.ending, work)
        tell(self._log, tool, work, error, gone.ending.complaint)
        return error


class _Attempt:
    """One call in a worker that answers no other."""

    def __init__(self, runner: PythonRunner, tool: Tool, work: RunRequest, spot: _Spot, sandbox: Sandbox) -> None:
        self._runner, self._tool, self._work, self._spot, self._sandbox = runner, tool, work, spot, sandbox

    async def __call__(self, workspace: Workspace) -> Answer:
        """Start it, ask it, and end it."""
        runner = self._runner
        worker = await runner.started(self._tool, self._spot, self._sandbox, workspace, calls=1)
        measures.starts.labels("python", "cold").inc()
        try:
            return await workspace.watched(worker.end, self._answered(worker))
        finally:
            await asyncio.shield(worker.end())

    async def _answered(self, worker: Worker) -> Answer:
        try:
            await self._runner.prepared(worker, self._tool, self._work)
        except WorkerGoneError as gone:
            raise self._runner.farewell(gone, self._tool, self._work) from None
        return await self._runner.asked(worker, self._tool, self._work)


def _request(tool: Tool, work: RunRequest, limit: int) -> Mapping[str, Any]:
    return {
        "id": work.invocation_id,
        "key": work.idempotency_key,
        "arguments": work.arguments,
        "seconds": work.seconds,
        "preview": work.preview,
        "cpu": processor_seconds(tool, work.seconds),
        "limit": limit,
    }
