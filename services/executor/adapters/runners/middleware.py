"""Wrappers around runners and sandboxes, each for one concern: metrics, error mapping and throttled starts."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import Counter, Histogram

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from libs.common.telemetry.metrics import SECONDS
from services.executor.adapters.sandbox.bounds import Bounds
from services.executor.adapters.sandbox.port import Plan, Sandbox, SandboxedProcess
from services.executor.domain.errors import execution_failed
from services.executor.domain.ports import Runner
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.tool import Tool

process_starts = Counter(
    "toolmesh_sandbox_starts_total",
    "Runs by whether a worker process existed (warm) or was started for the run (cold).",
    ["runner", "start"],
)
runs_total = Counter("toolmesh_sandbox_runs_total", "Completed runs by outcome.", ["runner", "sandbox", "ending"])
run_seconds = Histogram(
    "toolmesh_sandbox_run_seconds",
    "Duration of runs, from the request to the complete answer.",
    ["runner", "sandbox"],
    buckets=SECONDS,
)

_WITHOUT_SANDBOX = "none"


class MetricsRunner:
    """Counts and times the runs of another runner, by outcome."""

    def __init__(self, runner: Runner, kind: str) -> None:
        self._runner = runner
        self._kind = kind

    def sandbox_for(self, tool: Tool) -> str | None:
        """Ask the wrapped runner."""
        return self._runner.sandbox_for(tool)

    def missing_for(self, tool: Tool) -> str:
        """Ask the wrapped runner."""
        return self._runner.missing_for(tool)

    def runs_inline(self, tool: Tool) -> bool:
        """Ask the wrapped runner."""
        return self._runner.runs_inline(tool)

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Run the tool and record the outcome and the duration."""
        started, outcome = time.monotonic(), "succeeded"
        try:
            return await self._runner.run(tool, work)
        except MeshError as error:
            outcome = error.reason.name.lower()
            raise
        except BaseException:
            outcome = "canceled"
            raise
        finally:
            # The label holds tier and technology only. The digest of the code is in the audit record.
            sandbox = (self._runner.sandbox_for(tool) or _WITHOUT_SANDBOX).partition(" ")[0]
            runs_total.labels(self._kind, sandbox, outcome).inc()
            run_seconds.labels(self._kind, sandbox).observe(time.monotonic() - started)


class ErrorMappingRunner:
    """Maps every exception of another runner to MeshError. Unexpected ones are logged and become EXECUTION_FAILED.

    Why a sandbox failed is logged too: its error tells the caller no details of this machine.
    """

    def __init__(self, runner: Runner, log: Log) -> None:
        self._runner = runner
        self._log = log

    def sandbox_for(self, tool: Tool) -> str | None:
        """Ask the wrapped runner."""
        return self._runner.sandbox_for(tool)

    def missing_for(self, tool: Tool) -> str:
        """Ask the wrapped runner."""
        return self._runner.missing_for(tool)

    def runs_inline(self, tool: Tool) -> bool:
        """Ask the wrapped runner."""
        return self._runner.runs_inline(tool)

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Run the tool. Raises only MeshError."""
        try:
            return await self._runner.run(tool, work)
        except MeshError as error:
            if error.reason is Reason.RESULT_TOO_LARGE:
                error.metadata.setdefault("not_stored", "cap" if tool.persists else "opt_out")
            if error.reason is Reason.SANDBOX_UNAVAILABLE and error.__cause__ is not None:
                self._log.error("sandbox failed", tool=tool.name, cause=error.__cause__, scanner=work.scanner)
            raise
        except Exception as cause:
            self._log.error(
                "run failed with an unexpected exception", tool=tool.name, cause=cause, scanner=work.scanner
            )
            raise execution_failed("the tool could not be run") from cause


class ThrottledSandbox:
    """Limits how many processes a sandbox starts at once, so that a burst of cold starts does not starve warm calls."""

    def __init__(self, sandbox: Sandbox, max_starts: int) -> None:
        self._sandbox = sandbox
        self._starts = asyncio.Semaphore(max_starts)

    @property
    def name(self) -> str:
        """The name of the wrapped sandbox."""
        return self._sandbox.name

    def unavailable_reason(self) -> str:
        """Ask the wrapped sandbox."""
        return self._sandbox.unavailable_reason()

    def bounds(self) -> Bounds | None:
        """Ask the wrapped sandbox."""
        return self._sandbox.bounds()

    async def start(self, plan: Plan) -> SandboxedProcess:
        """Start a process once a start slot is free."""
        async with self._starts:
            return await self._sandbox.start(plan)

    async def close(self) -> None:
        """Close the wrapped sandbox."""
        await self._sandbox.close()
