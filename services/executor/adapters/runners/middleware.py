"""Small wrappers that every confined run passes, each for one thing."""

from __future__ import annotations

import asyncio
import time

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.runners import measures
from services.executor.adapters.sandbox.port import Confined, Plan, Sandbox
from services.executor.domain.errors import execution_failed
from services.executor.domain.model import RunRequest, RunResult
from services.executor.domain.ports import Runner
from services.executor.domain.tool import Tool

_WITHOUT_SANDBOX = "none"


class Measured:
    """A runner whose runs are counted, by how they ended."""

    def __init__(self, runner: Runner, kind: str) -> None:
        self._runner = runner
        self._kind = kind

    def sandbox_for(self, tool: Tool) -> str | None:
        """Ask the runner."""
        return self._runner.sandbox_for(tool)

    def runs_inline(self, tool: Tool) -> bool:
        """Ask the runner."""
        return self._runner.runs_inline(tool)

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Run the tool, and count it."""
        began, ending = time.monotonic(), "succeeded"
        try:
            return await self._runner.run(tool, work)
        except MeshError as error:
            ending = error.reason.name.lower()
            raise
        except BaseException:
            ending = "canceled"
            raise
        finally:
            # Its tier and what it is made of; which code ran in it is for the evidence, not for a label.
            sandbox = (self._runner.sandbox_for(tool) or _WITHOUT_SANDBOX).partition(" ")[0]
            measures.runs.labels(self._kind, sandbox, ending).inc()
            measures.seconds.labels(self._kind, sandbox).observe(time.monotonic() - began)


class Typed:
    """A runner that raises MeshError and nothing else. What nobody foresaw is logged, and is the tool's failure to its caller."""

    def __init__(self, runner: Runner, log: Log) -> None:
        self._runner = runner
        self._log = log

    def sandbox_for(self, tool: Tool) -> str | None:
        """Ask the runner."""
        return self._runner.sandbox_for(tool)

    def runs_inline(self, tool: Tool) -> bool:
        """Ask the runner."""
        return self._runner.runs_inline(tool)

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Run the tool."""
        try:
            return await self._runner.run(tool, work)
        except MeshError as error:
            if error.reason is Reason.RESULT_TOO_LARGE:
                error.metadata.setdefault("not_stored", "cap" if tool.persists else "opt_out")
            raise
        except Exception as cause:
            self._log.error("a run failed in a way nobody foresaw", tool=tool.name, cause=cause)
            raise execution_failed("the tool could not be run") from cause


class Paced:
    """A sandbox that starts only so many processes at once: a burst of cold starts must not starve the warm calls."""

    def __init__(self, sandbox: Sandbox, at_once: int) -> None:
        self._sandbox = sandbox
        self._turns = asyncio.Semaphore(at_once)

    @property
    def name(self) -> str:
        """The name of the sandbox."""
        return self._sandbox.name

    def unavailable(self) -> str:
        """Ask the sandbox."""
        return self._sandbox.unavailable()

    async def start(self, plan: Plan) -> Confined:
        """Start a process when it is its turn."""
        async with self._turns:
            return await self._sandbox.start(plan)

    async def close(self) -> None:
        """Close the sandbox."""
        await self._sandbox.close()
