"""Starts the resources, the server and the operator port of a gRPC process in order, and stops them in reverse."""

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

    from libs.common.sql.schema import ServiceSchema


async def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Resource:
    """Something that is started before the first call and released after the last."""

    start: Callable[[], Awaitable[object]] = _nothing
    stop: Callable[[], Awaitable[object]] = _nothing


def channel_resource(channel: grpc.aio.Channel) -> Resource:
    """Return the resource of a channel; it connects by itself."""
    return Resource(stop=channel.close)


def engine_resource(engine: AsyncEngine, schema: ServiceSchema) -> Resource:
    """Return the resource of a database. It starts only on the schema of this build; a job migrates."""

    async def check() -> None:
        from libs.common.sql.schema import check_schema

        await check_schema(engine, schema)

    return Resource(start=check, stop=engine.dispose)


class RpcApplication:
    """Starts the operator port, then every resource, then the server; ready only when all of them run."""

    def __init__(
        self,
        settings: ProcessSettings,
        log: Log,
        tracing: Tracing,
        *,
        policy: Policy,
        verifier: TokenVerifier,
        services: Sequence[Service],
        public_services: Sequence[str] = (),
        resources: Sequence[Resource] = (),
        before_drain: Callable[[], None] = lambda: None,
        ready_detail: Callable[[], str] = str,
    ) -> None:
        """`before_drain` ends streams that never end by themselves; they would prolong the drain.

        Reflection describes `public_services` to callers of the edge. `ready_detail` adds lines to the
        operator's /readyz.
        """
        chain = build_chain(
            policy=policy,
            verifier=verifier,
            trust_domain=settings.trust_domain,
            log=log,
            tracing=tracing,
            sample_ratio=settings.trace_sample_ratio,
            max_concurrent_calls=settings.max_concurrent_calls,
            public_origins=settings.public_origins,
        )
        self.server = RpcServer(settings, chain, services, public=public_services)
        self.ops = OpsServer(settings.ops_listen, lambda: self.server.ready, ready_detail)
        # Last, and so stopped first: it follows the issuer over one of the channels.
        self._resources = [*resources, Resource(verifier.start, verifier.stop)]
        self._before_drain = before_drain

    async def start(self) -> None:
        """Return when the process accepts calls."""
        self.ops.start()
        for resource in self._resources:
            await resource.start()
        await self.server.start()
        await self.server.set_ready(True)

    async def stop(self) -> None:
        """Drain, then release everything in reverse order."""
        self._before_drain()
        await self.server.drain()
        for resource in reversed(self._resources):
            await resource.stop()
        self.ops.stop()
