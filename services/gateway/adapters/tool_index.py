"""What the gateway needs to know of every registered tool, kept current by the registry's change stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import NamedTuple

import grpc
import grpc.aio
from toolmesh.registry.v1.registry_service_pb2 import WatchToolsRequest, WatchToolsResponse
from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from toolmesh.registry.v1.tool_manifest_pb2 import (
    IDEMPOTENCY_MODE_KEY_REQUIRED,
    TIMEOUT_CLASS_ASYNC,
    TIMEOUT_CLASS_LONG_RUNNING,
)
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion

from libs.common.errors import MeshError, Reason
from libs.common.runtime.backoff import Backoff
from libs.common.telemetry.log import Log
from libs.common.tool_names import ToolName, split_version_name
from services.gateway.mcp.tools.tool_definition import native_mapping

# The registry sends a heartbeat far more often.
SILENCE_SECONDS = 15.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_LONG = (TIMEOUT_CLASS_LONG_RUNNING, TIMEOUT_CLASS_ASYNC)


class VersionFacts(NamedTuple):
    """What is kept of one version."""

    tags: frozenset[str]
    requires_key: bool
    runs_as_job: bool
    shows_content: bool
    method: str


class ToolIndex:
    """Holds what calls of each version need: tags, whether it demands a key, whether it runs as a job. Reports changes.

    The gateway starts without it: until the first snapshot it knows of no tool.
    """

    def __init__(self, channel: grpc.aio.Channel, log: Log) -> None:
        self._stub, self._log = RegistryServiceStub(channel), log
        self._tools: dict[ToolName, dict[str, VersionFacts]] = {}
        self._listeners: dict[object, Callable[[ToolName], None]] = {}
        self._complete, self._token = False, ""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to watch; does not wait for the registry."""
        self._task = asyncio.create_task(self._watch_forever(), name="tool-index")

    async def stop(self) -> None:
        """Stop the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def has_tags(self, tool: ToolName, tags: Collection[str]) -> bool:
        """Return whether a version of the tool has all the tags.

        Raises SERVICE_UNAVAILABLE before the first snapshot.
        """
        if not self._complete:
            raise MeshError(Reason.SERVICE_UNAVAILABLE)
        return any(facts.tags.issuperset(tags) for facts in self._tools.get(tool, {}).values())

    def knows(self, tool: ToolName) -> bool:
        """Return whether there is such a tool."""
        return tool in self._tools

    def requires_key(self, tool: ToolName) -> bool:
        """Return whether a version of the tool must be called with an idempotency key."""
        return any(facts.requires_key for facts in self._tools.get(tool, {}).values())

    def runs_as_job(self, tool: ToolName) -> bool:
        """Return whether a version of the tool reports progress, or may take longer than a request should."""
        return any(facts.runs_as_job for facts in self._tools.get(tool, {}).values())

    def shows_content(self, tool: ToolName) -> bool:
        """Return whether the result of the tool is content of an MCP server, which clients get as it is."""
        return any(facts.shows_content for facts in self._tools.get(tool, {}).values())

    def method_of(self, tool: ToolName) -> str:
        """Return the method of an MCP server that the tool stands for; empty for any other tool."""
        return next((facts.method for facts in self._tools.get(tool, {}).values() if facts.method), "")

    def subscribe(self, listener: Callable[[ToolName], None]) -> Callable[[], None]:
        """Call the listener with each tool that changes."""
        subscription = object()
        self._listeners[subscription] = listener
        return lambda: self._listeners.pop(subscription, None) and None

    async def _watch_forever(self) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            before = self._token
            try:
                await self._watch()
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                self._log.warning("registry watch ended", reason=type(error).__name__)
            except Exception as error:
                self._log.error("registry watch failed", cause=error)
            if self._token != before:
                backoff.reset()
            await backoff.wait()

    async def _watch(self) -> None:
        """Apply events until the stream ends. A resumed stream sends no snapshot."""
        in_snapshot: set[str] = set()
        call = self._stub.WatchTools(WatchToolsRequest(resume_token=self._token))
        try:
            while True:
                async with asyncio.timeout(SILENCE_SECONDS):
                    event = await call.read()
                if not isinstance(event, WatchToolsResponse):
                    return
                self._apply(event, in_snapshot)
        finally:
            call.cancel()

    def _apply(self, event: WatchToolsResponse, in_snapshot: set[str]) -> None:
        kind = event.WhichOneof("event")
        if kind == "upserted":
            self._upsert(event.upserted)
            in_snapshot.add(event.upserted.name)
        elif kind == "removed":
            self._remove(event.removed)
            in_snapshot.discard(event.removed)
        elif kind == "snapshot_complete":
            gone = [name for versions in self._tools.values() for name in versions if name not in in_snapshot]
            for name in gone:
                self._remove(name)
            self._complete = True
        if event.resume_token:
            self._token = event.resume_token

    def _upsert(self, version: ToolVersion) -> None:
        tool, _ = split_version_name(version.name)
        manifest, versions = version.manifest, self._tools.setdefault(tool, {})
        if version.HasField("manifest"):
            key = manifest.idempotency.mode == IDEMPOTENCY_MODE_KEY_REQUIRED
            execution = manifest.execution
            is_job = execution.progress_supported or execution.timeout_class in _LONG
            native = native_mapping(manifest)
            versions[version.name] = VersionFacts(
                frozenset(manifest.tags), key, is_job, native.content_result, native.method
            )
        self._report(tool)

    def _remove(self, name: str) -> None:
        tool, _ = split_version_name(name)
        versions = self._tools.get(tool, {})
        versions.pop(name, None)
        if not versions:
            self._tools.pop(tool, None)
        self._report(tool)

    def _report(self, tool: ToolName) -> None:
        # During the first snapshot no listener has seen anything that could have changed.
        if self._complete:
            for listener in tuple(self._listeners.values()):
                listener(tool)
