"""The entry point of a tool of an upstream: which of its operations, and the definition that calls run under."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse_object
from services.executor.adapters.upstreams.directory import UpstreamConfig, UpstreamDirectory
from services.executor.domain import errors
from services.executor.domain.run import Forecast, RunRequest, RunResult
from services.executor.domain.tool import Tool

_UNKNOWN_IMPACT = "The server cannot say what this call would change. These are the effects that its manifest declares."


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """The operation of an upstream, and the definition that calls run under."""

    upstream: str
    tool: str
    definition: str


def parse_entry_point(tool: Tool) -> EntryPoint | None:
    """Return the entry point of a tool; None if it has none, or one into another namespace."""
    try:
        fields = parse_object(tool.entry_point.encode())
        entry_point = EntryPoint(**{key: str(value) for key, value in fields.items()})
    except (MeshError, TypeError):
        return None
    # Only the owner of the namespace decides what the tools of its upstream claim about themselves.
    return entry_point if tool.qualified.partition(".")[0] == entry_point.upstream else None


class UpstreamLookup:
    """Finds the upstream of a tool, among those of the kinds of one runner."""

    def __init__(self, directory: UpstreamDirectory, *kinds: str) -> None:
        """`kinds` are the members of the endpoint in the contract."""
        self._directory, self._kinds = directory, kinds

    def find(self, tool: Tool) -> UpstreamConfig | None:
        """Return the upstream of a tool; None if it is not known here."""
        entry_point = parse_entry_point(tool)
        upstream = None if entry_point is None else self._directory.get(entry_point.upstream)
        return upstream if upstream is not None and upstream.endpoint.WhichOneof("kind") in self._kinds else None

    def missing_for(self, tool: Tool) -> str:
        """Return why the tool cannot run here; empty if it can."""
        if parse_entry_point(tool) is None:
            return "its entry point names nothing of the upstream of its namespace"
        return "" if self.find(tool) is not None else "its upstream is not known here; `toolmesh upstreams list`"

    def require(self, tool: Tool) -> tuple[UpstreamConfig, EntryPoint]:
        """Return the upstream and the entry point of a tool. Raises TOOL_UNAVAILABLE."""
        upstream, entry_point = self.find(tool), parse_entry_point(tool)
        if upstream is None or entry_point is None:
            raise errors.nothing_runs_it(tool.name, self.missing_for(tool))
        return upstream, entry_point


def declared_forecast(tool: Tool, work: RunRequest) -> RunResult:
    """Return the preview of a call whose server has none: what the manifest declares."""
    work.begin()
    return RunResult(None, forecast=Forecast(changes=tool.effects, impact=_UNKNOWN_IMPACT))
