"""Runs the tools that ship with the executor inside its own process."""

from __future__ import annotations

from collections.abc import Iterable

from libs.common.errors import MeshError
from libs.common.telemetry.log import Log
from services.executor.builtin.tool import BuiltinTool, version_name
from services.executor.domain.errors import execution_failed
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.tool import Tool

SANDBOX = "in_process"


class BuiltinRunner:
    """Finds its tools by the full version name, so that no other manifest can select their code."""

    def __init__(self, tools: Iterable[BuiltinTool], log: Log) -> None:
        self._tools = {version_name(tool.manifest): tool for tool in tools}
        self._log = log

    def sandbox_for(self, tool: Tool) -> str | None:
        """Return the sandbox name if this build ships the version."""
        return SANDBOX if tool.name in self._tools else None

    def missing_for(self, tool: Tool) -> str:
        """Name the version if this build does not ship it."""
        return "" if tool.name in self._tools else "this build of the executor does not ship that version"

    def runs_inline(self, tool: Tool) -> bool:
        """Return True: built-in tools return within a moment and need no interruption."""
        return True

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Call the tool."""
        work.begin()
        try:
            return RunResult(self._tools[tool.name].call(work.arguments))
        except MeshError:
            raise
        except Exception as cause:
            self._log.error("tool failed", tool=tool.name, cause=cause, scanner=work.scanner)
            raise execution_failed("the tool failed") from cause
