"""A gRPC process put together: resources, server and operator's port, started in order and stopped in reverse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc.aio

from libs.common.auth.tokens import TokenVerifier
from libs.common.rpc.chain import build_chain
from libs.common.rpc.policy import Policy
from libs.common.rpc.server import RpcServer, Service
from libs.common.runtime.ops import OpsServer
from libs.common.runtime.settings import ProcessSettings
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


async def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Resource:
    """Something that must be there before the first call and is released after the last."""

    start: Callable[[], Awaitable[object]] = _nothing
    stop: Callable[[], Awaitable[object]] = _nothing


def channel_resource(channel: grpc.aio.Channel) -> Resource:
    """A channel to a peer; it connects by itself."""
    return Resource(stop=channel.close)


def engine_resource(engine: AsyncEngine, start: Callable[[], Awaitable[object]]) -> Resource:
    """A database; `start` brings its schema up to date."""
    return Resource(start=start, stop=engine.dispose)


class RpcApplication:
    """Starts the operator's port first, then every resource, then the server; ready only when all of it is up."""

    def __init__(
        self,
        settings: ProcessSettings,
        log: Log,
        tracing: Tracing,
        *,
        policy: Policy,
        verifier: TokenVerifier,
        services: Sequence[Service],
        resources: Sequence[Resource] = (),
        before_drain: Callable[[], None] = lambda: None,
        ready_detail: Callable[[], str] = str,
    ) -> None:
        """`before_drain` sends away whoever holds a stream that never ends by itself; it would hold the drain to its limit.
        `ready_detail` adds lines to the operator's /readyz."""
        chain = build_chain(
            policy=policy,
            verifier=verifier,
            trust_domain=settings.trust_domain,
            log=log,
            tracing=tracing,
            sample_ratio=settings.trace_sample_ratio,
            max_concurrent_calls=settings.max_concurrent_calls,
        )
        self.server = RpcServer(settings, chain, services)
        self.ops = OpsServer(settings.ops_listen, lambda: self.server.ready, ready_detail)
        # Last, and so stopped first: it follows the issuer over one of the channels before it.
        self._resources = [*resources, Resource(verifier.start, verifier.stop)]
        self._before_drain = before_drain

    async def start(self) -> None:
        """Return when the process takes calls."""
        self.ops.start()
        for resource in self._resources:
            await resource.start()
        await self.server.start()
        await self.server.set_ready(True)

    async def stop(self) -> None:
        """Let what was accepted finish, then release everything in reverse order."""
        self._before_drain()
        await self.server.drain()
        for resource in reversed(self._resources):
            await resource.stop()
        self.ops.stop()
