"""Tells the edge what a request was about, for its access log: the edge reads no body."""

from __future__ import annotations

from typing import Protocol

from libs.common.call_context import Call
from libs.common.errors import MeshError
from libs.common.tool_names import ToolName
from services.gateway.transport.asgi_types import Headers


class KnownTools(Protocol):
    """The tools that exist. Any other name is free text of a caller, which may hold anything."""

    def knows(self, tool: ToolName) -> bool:
        """Return whether there is such a tool."""
        ...


class EdgeLog:
    """Makes the headers that the edge logs, and does not pass on."""

    def __init__(self, tools: KnownTools) -> None:
        self._tools = tools

    def headers(self, call: Call) -> Headers:
        """Return the method of a call, whose label is one of a few, and its tool if that exists."""
        headers = [(b"x-toolmesh-method", call.method.encode())]
        if call.tool:
            try:
                tool = ToolName.parse(call.tool)
            except MeshError:
                return headers
            if self._tools.knows(tool):
                headers.append((b"x-toolmesh-tool", tool.qualified.encode()))
        return headers
