"""Quarantines tool versions that violated their manifest: here at once, and in the registry as soon as it accepts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import grpc
import grpc.aio
from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
from toolmesh.registry.v1 import lifecycle_service_pb2_grpc as rpc

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.backoff import Backoff
from libs.common.telemetry.log import Log
from services.executor.domain import errors
from services.executor.domain.ports import ToolView
from services.executor.domain.tool import Tool, VersionIdentity

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_CALL_SECONDS = 5.0
_MAX_REASON = 1000
# Errors which show that the tool view no longer offers the version.
_UNAVAILABLE_REASONS = frozenset(
    {Reason.TOOL_UNAVAILABLE, Reason.TOOL_DEPRECATED, Reason.TOOL_NOT_FOUND, Reason.TOOL_VERSION_NOT_FOUND}
)


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A quarantined version, and the invocation that violated the manifest."""

    tool: Tool
    why: str
    invocation_id: str


class QuarantineRefusingTools:
    """A tool view that refuses the versions which this process quarantined."""

    def __init__(self, view: ToolView, channel: grpc.aio.Channel, log: Log) -> None:
        self._view, self._log = view, log
        self._stub = rpc.LifecycleServiceStub(channel)
        self._suspects: dict[str, _Suspect] = {}
        self._reports: dict[str, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        """Cancel the reports that the registry has not accepted yet."""
        reports = list(self._reports.values())
        for task in reports:
            task.cancel()
        if reports:
            await asyncio.wait(reports)

    def resolve(self, reference: str, constraint: str) -> Tool:
        """Resolve a reference through the view. Raises TOOL_UNAVAILABLE if the version is quarantined here."""
        tool = self._view.resolve(reference, constraint)
        if self._suspects and (suspect := self._suspects.get(tool.name)) is not None:
            raise errors.tool_unavailable(VersionIdentity(tool.name, tool.digest), "quarantined", suspect.why)
        return tool

    async def impose(self, tool: Tool, why: str, invocation_id: str, *, within: float) -> None:
        """Quarantine a version. It is refused here at once; returns when the registry has accepted, or after `within`
        seconds.

        The report to the registry is repeated in the background until it is accepted. Idempotent.
        """
        name = tool.name
        if name not in self._suspects:
            self._suspects[name] = suspect = _Suspect(tool, why[:_MAX_REASON], invocation_id)
            self._log.error("tool quarantined", name=name, why=suspect.why, invocation_id=invocation_id)
            task = self._reports[name] = asyncio.create_task(self._report(suspect), name="quarantine")
            task.add_done_callback(lambda _: self._reports.pop(name, None))
        if (report := self._reports.get(name)) is not None:
            await asyncio.wait([report], timeout=within)

    async def _report(self, suspect: _Suspect) -> None:
        """Report until the registry accepts. If it refuses for good, the version stays quarantined in this process."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=0.0)
        while (accepted := await self._send(suspect)) is None:
            await backoff.wait()
        if not accepted:
            return
        # The view takes over once it has received the new state; it also receives a later release.
        while not self._is_unavailable(suspect.tool):  # noqa: ASYNC110  (the view has no event for it)
            await asyncio.sleep(_FIRST_PAUSE)
        del self._suspects[suspect.tool.name]

    async def _send(self, suspect: _Suspect) -> bool | None:
        """Return whether the registry accepted; None if the report must be repeated."""
        name = suspect.tool.name
        # The invocation id makes the request idempotent; a violation after a release has another id.
        request = pb.QuarantineToolRequest(name=name, reason=suspect.why, request_id=suspect.invocation_id)
        try:
            await self._stub.QuarantineTool(request, timeout=_CALL_SECONDS)
        except (grpc.aio.AioRpcError, MeshError) as error:
            failure = from_rpc_error(error) if isinstance(error, grpc.aio.AioRpcError) else error
            if failure.reason is Reason.FAILED_PRECONDITION:
                # The version is already quarantined or retired.
                return True
            self._log.warning("quarantine not accepted by the registry", name=name, reason=failure.reason.name)
            return None if failure.row.retryable else False
        self._log.info("quarantine accepted by the registry", name=name)
        return True

    def _is_unavailable(self, tool: Tool) -> bool:
        try:
            return self._view.resolve(tool.qualified, tool.version).name != tool.name
        except MeshError as error:
            return error.reason in _UNAVAILABLE_REASONS
