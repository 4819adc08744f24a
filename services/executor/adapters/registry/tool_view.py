"""A view of the registered tools that follows the registry's change stream and fails closed when it is stale."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import grpc.aio
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import registry_service_pb2_grpc as rpc
from toolmesh.registry.v1 import tool_version_pb2 as vpb

from libs.authz_client.tool_attributes import health_name
from libs.common.errors import MeshError
from libs.common.runtime.backoff import Backoff
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from libs.common.tool_names import ToolName
from services.executor.adapters.registry.catalog import Catalog
from services.executor.adapters.registry.compile_tool import compile_version, trust_of
from services.executor.domain import errors
from services.executor.domain.tool import Tool

# Without a message of the registry for this long, a withdrawn tool might still look available here.
STALE_SECONDS = 30.0
# A watch that is silent for this long is reopened, well before the view is stale.
SILENCE_SECONDS = 15.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class RegistryToolView:
    """Holds every version, compiled. Resolves nothing without a recent message of the registry."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock, log: Log, *, silence: float = SILENCE_SECONDS) -> None:
        self._stub = rpc.RegistryServiceStub(channel)
        self._clock, self._log, self._silence = clock, log, silence
        self._catalog = Catalog(clock)
        self._complete = asyncio.Event()
        self._token = ""
        self._last_message = float("-inf")
        self._watch_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to watch and wait for the first complete snapshot."""
        self._watch_task = asyncio.create_task(self._watch_forever(), name="registry-view")
        await self._complete.wait()

    async def stop(self) -> None:
        """Stop the watch."""
        if self._watch_task is not None:
            self._watch_task.cancel()
            await asyncio.wait([self._watch_task])

    def resolve(self, reference: str, constraint: str) -> Tool:
        """Resolve a reference to a version. Raises SERVICE_UNAVAILABLE if the view may be stale."""
        if self.age() > STALE_SECONDS:
            raise errors.catalog_stale()
        return self._catalog.resolve(reference, constraint)

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the digest of every version that changes or is removed."""
        self._catalog.listen(listener)

    def listen_withdrawn(self, listener: Callable[[errors.ToolUnavailableError], None]) -> None:
        """Call the listener for every version that is quarantined, retired or removed, with the error of its calls."""
        self._catalog.listen_withdrawn(listener)

    def age(self) -> float:
        """Return the seconds since the registry last confirmed the view; infinite before the first snapshot."""
        return self._clock.monotonic() - self._last_message if self._complete.is_set() else float("inf")

    async def _watch_forever(self) -> None:
        # With jitter, so that the executors do not reconnect to a restarted registry all at once.
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            before = self._last_message
            try:
                await self._watch()
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                self._log.warning("registry watch ended", reason=type(error).__name__, age=round(self.age(), 1))
            except Exception as error:
                self._log.error("registry watch failed", cause=error)
            if self._last_message > before:
                backoff.reset()
            await backoff.wait()

    async def _watch(self) -> None:
        """Apply events until the stream ends. A resumed stream sends no snapshot."""
        in_snapshot: set[str] = set()
        call = self._stub.WatchTools(pb.WatchToolsRequest(resume_token=self._token))
        try:
            while True:
                async with asyncio.timeout(self._silence):
                    event = await call.read()
                if not isinstance(event, pb.WatchToolsResponse):
                    return
                self._apply(event, in_snapshot)
        finally:
            call.cancel()

    def _apply(self, event: pb.WatchToolsResponse, in_snapshot: set[str]) -> None:
        kind = event.WhichOneof("event")
        if kind == "upserted":
            self._upsert(event.upserted)
            in_snapshot.add(event.upserted.name)
        elif kind == "removed":
            self._catalog.remove(event.removed)
            in_snapshot.discard(event.removed)
        elif kind == "snapshot_complete":
            self._catalog.retain(in_snapshot)
            self._complete.set()
            self._log.info("registry snapshot complete", versions=len(self._catalog))
        elif kind == "trusts":
            for trust in event.trusts.tools:
                self._catalog.set_trust(ToolName.parse(trust.tool), trust_of(trust))
        elif kind == "healths":
            for health in event.healths.versions:
                self._catalog.set_health(health.version, health_name(health))
        if event.resume_token:
            # Messages inside a snapshot have no token: the rest of the view may still be outdated then.
            self._token, self._last_message = event.resume_token, self._clock.monotonic()

    def _upsert(self, version: vpb.ToolVersion) -> None:
        try:
            entry = compile_version(version, self._catalog.get(version.name))
        except MeshError as error:
            # A version with an invalid name can be neither stored nor resolved.
            self._log.error("registry sent a version with an invalid name", name=version.name[:512], cause=error)
            return
        if entry.tool is None:
            self._log.error("version cannot be compiled", name=entry.name)
        self._catalog.put(entry)
