"""What a caller should know of the tool that it called, and cannot see from its result."""

from __future__ import annotations

from services.executor.domain.model import CallWarning
from services.executor.domain.tool import Tool

LOOK_ALIKE = "look_alike"


def warnings_of(tool: Tool) -> tuple[CallWarning, ...]:
    """Return the warnings of a call. Only the newer of two tools with similar names warns, so that registering a
    similar name does not put a warning on every call of the older tool."""
    return tuple(_look_alike(tool, older) for older in tool.trust.taken_for)


def _look_alike(tool: Tool, older: str) -> CallWarning:
    message = f"{tool.qualified} is easily taken for {older}, which is older and has another owner."
    return CallWarning(LOOK_ALIKE, message, older)
