"""Dispatches a run to the runner of the kind that the tool's manifest names."""

from __future__ import annotations

from collections.abc import Mapping

from services.executor.domain.ports import Runner
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.tool import Tool


class DispatchingRunner:
    """Combines one runner per kind. A tool of another kind cannot run here."""

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self._runners = dict(runners)

    def sandbox_for(self, tool: Tool) -> str | None:
        """Ask the runner of the tool's kind; None if there is no such runner."""
        runner = self._runners.get(tool.runner)
        return None if runner is None else runner.sandbox_for(tool)

    def missing_for(self, tool: Tool) -> str:
        """Name the missing runner, or ask the runner of the tool's kind."""
        runner = self._runners.get(tool.runner)
        if runner is None:
            return f"there is no runner {tool.runner} here, only {', '.join(sorted(self._runners))}"
        return runner.missing_for(tool)

    def runs_inline(self, tool: Tool) -> bool:
        """Ask the runner of the tool's kind."""
        return self._runners[tool.runner].runs_inline(tool)

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Run the tool with the runner of its kind."""
        return await self._runners[tool.runner].run(tool, work)
