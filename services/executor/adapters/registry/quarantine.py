"""Tools that broke their word, out of use: here at once, everywhere as soon as the registry has taken it in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import grpc
import grpc.aio
from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
from toolmesh.registry.v1 import lifecycle_service_pb2_grpc as rpc

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from libs.common.telemetry.log import Log
from services.executor.domain import errors
from services.executor.domain.ports import ToolView
from services.executor.domain.tool import Tool

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_CALL_SECONDS = 5.0
_MAX_REASON = 1000
# The view has heard that the version may not run any more, for this reason or another.
_CAUGHT_UP = frozenset(
    {Reason.TOOL_UNAVAILABLE, Reason.TOOL_DEPRECATED, Reason.TOOL_NOT_FOUND, Reason.TOOL_VERSION_NOT_FOUND}
)


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A version that must not run, and who saw why."""

    tool: Tool
    why: str
    invocation_id: str


class QuarantiningView:
    """A view of the tools without those that are suspected here. As long as nobody is, it costs one test."""

    def __init__(self, view: ToolView, channel: grpc.aio.Channel, log: Log) -> None:
        self._view, self._log = view, log
        self._stub = rpc.LifecycleServiceStub(channel)
        self._suspects: dict[str, _Suspect] = {}
        self._telling: dict[str, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        """Give up what the registry has not taken in yet."""
        telling = list(self._telling.values())
        for task in telling:
            task.cancel()
        if telling:
            await asyncio.wait(telling)

    def resolve(self, reference: str, constraint: str) -> Tool:
        """Return the version that a reference means, as the view does. Raises TOOL_UNAVAILABLE if it is suspected."""
        tool = self._view.resolve(reference, constraint)
        if self._suspects and (suspect := self._suspects.get(tool.name)) is not None:
            raise errors.tool_unavailable(tool.name, "quarantined", suspect.why)
        return tool

    async def impose(self, tool: Tool, why: str, invocation_id: str, *, within: float) -> None:
        """Take a version out of use. From now on it is refused here; this returns when the registry has taken it in, or after so many
        seconds, and the registry is told again and again until it has. Imposing it twice imposes it once."""
        name = tool.name
        if name not in self._suspects:
            self._suspects[name] = suspect = _Suspect(tool, why[:_MAX_REASON], invocation_id)
            self._log.error("tool put into quarantine", name=name, why=suspect.why, invocation_id=invocation_id)
            task = self._telling[name] = asyncio.create_task(self._tell(suspect), name="quarantine")
            task.add_done_callback(lambda _: self._telling.pop(name, None))
        if (telling := self._telling.get(name)) is not None:
            await asyncio.wait([telling], timeout=within)

    async def _tell(self, suspect: _Suspect) -> None:
        """Return once every executor knows, or the registry has refused for good; then it stays suspected in this process."""
        pause = _FIRST_PAUSE
        while (taken := await self._taken(suspect)) is None:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        if not taken:
            return
        # Only now may the view decide alone: it will also hear when somebody has looked and released the tool.
        while not self._view_knows(suspect.tool):  # noqa: ASYNC110  (what the view hears, it tells nobody)
            await asyncio.sleep(_FIRST_PAUSE)
        del self._suspects[suspect.tool.name]

    async def _taken(self, suspect: _Suspect) -> bool | None:
        """Say whether the registry took it in; None if it must be asked again."""
        name = suspect.tool.name
        # Under the invocation's id: told twice it is done once, and another violation after a release is another matter.
        request = pb.QuarantineToolRequest(name=name, reason=suspect.why, request_id=suspect.invocation_id)
        try:
            await self._stub.QuarantineTool(request, timeout=_CALL_SECONDS)
        except (grpc.aio.AioRpcError, MeshError) as error:
            failure = from_rpc_error(error) if isinstance(error, grpc.aio.AioRpcError) else error
            if failure.reason is Reason.FAILED_PRECONDITION:
                # Somebody else was faster, or it has been retired.
                return True
            self._log.warning("quarantine not taken in", name=name, reason=failure.reason.name)
            return None if failure.row.retryable else False
        self._log.info("quarantine taken in by the registry", name=name)
        return True

    def _view_knows(self, tool: Tool) -> bool:
        try:
            return self._view.resolve(tool.qualified, tool.version).name != tool.name
        except MeshError as error:
            return error.reason in _CAUGHT_UP
