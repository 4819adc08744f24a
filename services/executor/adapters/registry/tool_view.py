"""The tools there are, kept fresh by the registry's change stream; it knows when it may be out of date, and then refuses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import grpc
import grpc.aio
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import registry_service_pb2_grpc as rpc
from toolmesh.registry.v1 import tool_version_pb2 as vpb

from libs.common.errors import MeshError
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.executor.adapters.registry.catalog import Catalog
from services.executor.adapters.registry.compile_tool import entry_of
from services.executor.domain import errors
from services.executor.domain.tool import Tool

# Without a sign of life for this long, a withdrawn tool might still look available here.
STALE_SECONDS = 30.0
# A watch that is silent for this long is opened anew, well before the view would be stale.
SILENCE_SECONDS = 15.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class RegistryView:
    """Holds every version, compiled. Fails closed: without a recent sign of life from the registry it resolves nothing."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock, log: Log, *, silence: float = SILENCE_SECONDS) -> None:
        self._stub = rpc.RegistryServiceStub(channel)
        self._clock, self._log, self._silence = clock, log, silence
        self._catalog = Catalog(clock)
        self._complete = asyncio.Event()
        self._token = ""
        self._heard = float("-inf")
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to watch and return when the first snapshot is complete."""
        self._watching = asyncio.create_task(self._watch_forever(), name="registry-view")
        await self._complete.wait()

    async def stop(self) -> None:
        """End the watch."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    def resolve(self, reference: str, constraint: str) -> Tool:
        """Return the version that a reference means. Raises SERVICE_UNAVAILABLE when the view may be out of date."""
        if self.age() > STALE_SECONDS:
            raise errors.catalog_stale()
        return self._catalog.resolve(reference, constraint)

    def listen(self, listener: Callable[[str], None]) -> None:
        """Tell the listener the digest of every version that changes or goes."""
        self._catalog.listen(listener)

    def age(self) -> float:
        """Seconds since the registry last vouched for everything here; infinite before the first snapshot."""
        return self._clock.monotonic() - self._heard if self._complete.is_set() else float("inf")

    async def _watch_forever(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            heard = self._heard
            try:
                await self._watch()
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                self._log.warning("registry watch ended", reason=type(error).__name__, age=round(self.age(), 1))
            except Exception as error:
                self._log.error("registry watch failed", cause=error)
            pause = _FIRST_PAUSE if self._heard > heard else min(pause * 2, _LONGEST_PAUSE)
            # Spread out, so that a restarted registry is not met by every executor at once.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311

    async def _watch(self) -> None:
        """Apply events until the stream ends. What a snapshot mentions is counted per stream: a resumed one has none."""
        mentioned: set[str] = set()
        call = self._stub.WatchTools(pb.WatchToolsRequest(resume_token=self._token))
        try:
            while True:
                async with asyncio.timeout(self._silence):
                    event = await call.read()
                if not isinstance(event, pb.WatchToolsResponse):
                    return
                self._apply(event, mentioned)
        finally:
            call.cancel()

    def _apply(self, event: pb.WatchToolsResponse, mentioned: set[str]) -> None:
        kind = event.WhichOneof("event")
        if kind == "upserted":
            self._upsert(event.upserted)
            mentioned.add(event.upserted.name)
        elif kind == "removed":
            self._catalog.drop(event.removed)
            mentioned.discard(event.removed)
        elif kind == "snapshot_complete":
            self._catalog.keep_only(mentioned)
            self._complete.set()
            self._log.info("registry snapshot complete", versions=len(self._catalog))
        if event.resume_token:
            # Inside a snapshot there is none: what was not told yet may be outdated, however lively the registry is.
            self._token, self._heard = event.resume_token, self._clock.monotonic()

    def _upsert(self, version: vpb.ToolVersion) -> None:
        try:
            entry = entry_of(version, self._catalog.get(version.name))
        except MeshError as error:
            # A name that is none can be neither stored nor asked for.
            self._log.error("registry sent an unusable version", name=version.name[:512], cause=error)
            return
        if entry.tool is None:
            self._log.error("version cannot be compiled", name=entry.name)
        self._catalog.put(entry)
