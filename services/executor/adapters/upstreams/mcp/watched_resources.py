"""Watches resources of MCP servers, each watch on a connection or in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from libs.common.errors import MeshError, Reason
from libs.common.rpc.stream_slots import StreamLimits, StreamSlots
from services.executor.adapters.upstreams.directory import UpstreamConfig, UpstreamDirectory
from services.executor.adapters.upstreams.mcp.resource_listener import ResourceListener, wait_for_event
from services.executor.adapters.upstreams.mcp.secrets import ServerSecrets
from services.executor.adapters.upstreams.monitor import FAILURES, failure_reason
from services.executor.adapters.upstreams.servers import Servers
from services.executor.domain.scheduling.heavy_work import Principal

_OPEN_SECONDS = 30.0


class UpstreamResources:
    """Implements ResourceServers. A watch is the caller's: with its credentials, and no other caller's changes."""

    def __init__(self, directory: UpstreamDirectory, servers: Servers, confined: StreamLimits) -> None:
        """`confined` bounds the processes, which cost more than connections."""
        self._directory, self._servers, self._confined = directory, servers, StreamSlots(confined)

    @asynccontextmanager
    async def watch(self, upstream_id: str, owner: Principal, uris: Sequence[str]) -> AsyncIterator[ChangedResources]:
        """Implement `ResourceServers.watch`."""
        config = self._directory.get(upstream_id)
        if config is None:
            raise _unavailable(upstream_id, "it is not known here")
        listener = ResourceListener(uris)
        work = asyncio.create_task(self._run(config, owner, uris, listener), name=f"watch {upstream_id}")
        try:
            try:
                async with asyncio.timeout(_OPEN_SECONDS):
                    await wait_for_event(listener.ready, work, None)
                if listener.refusal is not None:
                    raise listener.refusal
            except FAILURES as error:
                raise _unavailable(upstream_id, failure_reason(error)) from None
            yield ChangedResources(self._directory, config, listener, work)
        finally:
            work.cancel()
            await asyncio.wait({work})

    async def _run(
        self, config: UpstreamConfig, owner: Principal, uris: Sequence[str], listener: ResourceListener
    ) -> None:
        secrets = await self._servers.read_secrets(config, owner)
        if config.endpoint.WhichOneof("kind") == "mcp_stdio":
            with self._confined.hold(owner.subject, owner.tenant):
                await self._run_confined(config, owner, secrets, uris, listener)
            return
        remote = self._servers.connect(config, owner)
        remote.transport.secrets = secrets
        try:
            await remote.session.open()
            await remote.session.watch(uris, listener)
        finally:
            await asyncio.shield(remote.close())

    async def _run_confined(
        self,
        config: UpstreamConfig,
        owner: Principal,
        secrets: ServerSecrets,
        uris: Sequence[str],
        listener: ResourceListener,
    ) -> None:
        server = await self._servers.start(config, owner, secrets)
        try:
            await server.session.watch(uris, listener)
        finally:
            await asyncio.shield(server.end())


class ChangedResources:
    """Implements ResourceChanges."""

    def __init__(
        self,
        directory: UpstreamDirectory,
        config: UpstreamConfig,
        listener: ResourceListener,
        work: asyncio.Task[None],
    ) -> None:
        self._directory, self._config, self._listener, self._work = directory, config, listener, work

    async def next(self, seconds: float) -> list[str]:
        """Implement `ResourceChanges.next`."""
        try:
            await wait_for_event(self._listener.changed, self._work, seconds)
        except FAILURES as error:
            raise _unavailable(self._config.upstream_id, failure_reason(error)) from None
        if self._directory.get(self._config.upstream_id) is not self._config:
            raise _unavailable(self._config.upstream_id, "it changed")
        return self._listener.take()


def _unavailable(upstream_id: str, why: str) -> MeshError:
    return MeshError(
        Reason.EXTERNAL_UNAVAILABLE,
        message=f"resources of the upstream {upstream_id} cannot be watched: {why}",
        metadata={"upstream": upstream_id},
    )
