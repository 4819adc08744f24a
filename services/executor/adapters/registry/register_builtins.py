"""Registers the built-in tools in the background until the registry has accepted or finally refused them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import grpc
import grpc.aio
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import registry_service_pb2_grpc as rpc
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.errors import MeshError
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.backoff import Backoff
from libs.common.telemetry.log import Log
from services.executor.builtin.tool import version_name

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0


class BuiltinRegistrar:
    """Retries transient failures. A permanent refusal is logged and not retried."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        manifests: Sequence[mpb.ToolManifest],
        log: Log,
        *,
        after: Callable[[], Awaitable[None]],
    ) -> None:
        """`after` returns when the registry knows that this executor runs built-in tools."""
        self._stub, self._after = rpc.RegistryServiceStub(channel), after
        self._manifests, self._log = manifests, log
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start registering. Does not wait for the registry."""
        self._task = asyncio.create_task(self.register_all(), name="registrar")

    async def stop(self) -> None:
        """Stop registering."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def register_all(self) -> None:
        """Return when every manifest was accepted or finally refused."""
        await self._after()
        remaining = list(self._manifests)
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=0.0)
        while remaining := [manifest for manifest in remaining if not await self._register(manifest)]:
            await backoff.wait()

    async def _register(self, manifest: mpb.ToolManifest) -> bool:
        """Register a manifest; return False if it must be retried."""
        name = version_name(manifest)
        try:
            response = await self._stub.RegisterTool(pb.RegisterToolRequest(manifest=manifest), timeout=5.0)
        except (grpc.aio.AioRpcError, MeshError) as error:
            failure = from_rpc_error(error) if isinstance(error, grpc.aio.AioRpcError) else error
            violations = [f"{v.path}: {v.message}" for v in failure.violations]
            self._log.warning("tool not registered", name=name, reason=failure.reason.name, violations=violations)
            return not failure.row.retryable
        self._log.info("tool registered", name=name, created=response.created)
        return True
