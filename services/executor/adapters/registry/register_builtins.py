"""Registers the tools that ship with the executor, in the background and until the registry has taken them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc
import grpc.aio
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import registry_service_pb2_grpc as rpc
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.errors import MeshError
from libs.common.rpc.status import from_rpc_error
from libs.common.telemetry.log import Log
from services.executor.builtin.tool import version_name

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0


class Registrar:
    """Repeats until done; a refusal that repeating cannot change is logged once and left to people."""

    def __init__(self, channel: grpc.aio.Channel, manifests: Sequence[mpb.ToolManifest], log: Log) -> None:
        self._stub = rpc.RegistryServiceStub(channel)
        self._manifests, self._log = manifests, log
        self._registering: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; does not wait for the registry."""
        self._registering = asyncio.create_task(self.register_all(), name="registrar")

    async def stop(self) -> None:
        """Give up what is not done yet."""
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.wait([self._registering])

    async def register_all(self) -> None:
        """Return when every manifest was taken or finally refused."""
        waiting = list(self._manifests)
        pause = _FIRST_PAUSE
        while waiting := [manifest for manifest in waiting if not await self._settled(manifest)]:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _settled(self, manifest: mpb.ToolManifest) -> bool:
        """Say whether nothing is left to do for this one."""
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
