"""The upstreams of the mesh, as the registry streams them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import grpc
import grpc.aio
from toolmesh.registry.v1 import upstream_pb2
from toolmesh.registry.v1 import upstream_service_pb2 as pb
from toolmesh.registry.v1 import upstream_service_pb2_grpc as rpc

from libs.common.runtime.backoff import Backoff
from libs.common.telemetry.log import Log

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
# A watch that is silent for this long is reopened.
_SILENCE_SECONDS = 15.0
_PREFIX = "upstreams/"


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """How an upstream is reached."""

    upstream_id: str
    generation: int
    endpoint: upstream_pb2.UpstreamEndpoint

    @property
    def endpoint_digest(self) -> str:
        """Identifies the endpoint: servers of another one are not used for it."""
        return hashlib.sha256(self.endpoint.SerializeToString(deterministic=True)).hexdigest()


OnChange = Callable[[str, UpstreamConfig | None], None]
"""Takes the id and the upstream; None if it is gone."""


class UpstreamDirectory:
    """Follows WatchUpstreams. While the registry is away, the known upstreams stay."""

    def __init__(self, channel: grpc.aio.Channel, log: Log) -> None:
        self._stub = rpc.UpstreamServiceStub(channel)
        self._log = log
        self._upstreams: dict[str, UpstreamConfig] = {}
        self._listeners: list[OnChange] = []
        self._task: asyncio.Task[None] | None = None

    def listen(self, listener: OnChange) -> None:
        """Call the listener with every upstream that is new, changed or gone."""
        self._listeners.append(listener)

    def get(self, upstream_id: str) -> UpstreamConfig | None:
        """Return an upstream; None if it is not known here."""
        return self._upstreams.get(upstream_id)

    @property
    def all(self) -> Mapping[str, UpstreamConfig]:
        """Every upstream by id."""
        return self._upstreams

    async def start(self) -> None:
        """Start to watch. Does not wait for the registry."""
        self._task = asyncio.create_task(self._watch_forever(), name="upstream-directory")

    async def stop(self) -> None:
        """Stop the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _watch_forever(self) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                await self._watch(backoff)
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                self._log.warning("upstream watch ended", reason=type(error).__name__)
            except Exception as error:
                self._log.error("upstream watch failed", cause=error)
            await backoff.wait()

    async def _watch(self, backoff: Backoff) -> None:
        in_snapshot: set[str] | None = set()
        call = self._stub.WatchUpstreams(pb.WatchUpstreamsRequest())
        try:
            while True:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    event = await call.read()
                if not isinstance(event, pb.WatchUpstreamsResponse):
                    return
                backoff.reset()
                kind = event.WhichOneof("event")
                if kind == "upstream":
                    self._put(event.upstream)
                    if in_snapshot is not None:
                        in_snapshot.add(event.upstream.name.removeprefix(_PREFIX))
                elif kind == "removed":
                    self._remove(event.removed.removeprefix(_PREFIX))
                elif kind == "snapshot_complete" and in_snapshot is not None:
                    for upstream_id in self._upstreams.keys() - in_snapshot:
                        self._remove(upstream_id)
                    in_snapshot = None
        finally:
            call.cancel()

    def _put(self, message: upstream_pb2.Upstream) -> None:
        config = UpstreamConfig(message.name.removeprefix(_PREFIX), message.generation, message.endpoint)
        if self._upstreams.get(config.upstream_id) != config:
            self._upstreams[config.upstream_id] = config
            self._notify(config.upstream_id, config)

    def _remove(self, upstream_id: str) -> None:
        if self._upstreams.pop(upstream_id, None) is not None:
            self._notify(upstream_id, None)

    def _notify(self, upstream_id: str, config: UpstreamConfig | None) -> None:
        for listener in self._listeners:
            listener(upstream_id, config)
