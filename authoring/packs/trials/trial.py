"""One call of a tool under test, and what of it breaks the tool's promise. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from libs.common.errors import MeshError, Reason
from services.executor.domain.tool import Tool

_MAX_SHOWN = 300
_MAX_LINES = 6


@dataclass(frozen=True, slots=True)
class Trial:
    """What one call did: its value, or how it failed."""

    arguments: Mapping[str, Any]
    value: Any = None
    error: MeshError | None = None
    lines: tuple[str, ...] = ()
    """The traceback, or what the process wrote last."""
    hung: bool = False
    undeclared: tuple[str, ...] = ()
    """Effects that the manifest does not declare."""

    @property
    def refused(self) -> bool:
        """Return whether the tool itself said no, with a message for its caller."""
        return self.error is not None and self.error.reason in _SAID and not _CRASHED & self.error.metadata.keys()

    def defect(self, tool: Tool) -> str:
        """Return what is wrong with the tool, with the arguments that show it; empty if nothing is."""
        said = self._defect(tool)
        return f"{said}; called with {shown(self.arguments)}" if said else ""

    def _defect(self, tool: Tool) -> str:
        if self.hung:
            return f"did not end within its {tool.own_limit:g} s"
        if self.refused:
            return ""
        if self.error is not None:
            cause = " | ".join(line.strip() for line in self.lines[-_MAX_LINES:] if line.strip())
            return f"failed with {self.error.reason.name}: {cause or self.error.message}"
        if self.undeclared:
            return f"changed what its manifest does not declare: {', '.join(self.undeclared)}"
        for violation in tool.output.violations(self.value):
            return f"returned {shown(self.value)}, which breaks its output schema at {violation.path or '/'}"
        return ""


_SAID = (Reason.EXECUTION_FAILED, Reason.PARTIAL_FAILURE)
_CRASHED = {"exception", "exit_code"}


def shown(value: Any) -> str:
    """Return a value as short JSON."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
