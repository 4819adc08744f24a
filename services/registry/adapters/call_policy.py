"""Asks authz which tools the current caller may call. The caller's token is forwarded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc.aio
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1.authz_service_pb2_grpc import AuthzServiceStub

from libs.authz_client.tool_attributes import set_trust_attributes, tool_attributes
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.clock import Clock
from services.registry.convert.registry import tool_version, version_trust
from services.registry.domain.health.ports import VersionHealths
from services.registry.domain.model import Usability, VersionHead
from services.registry.domain.ports import Catalogue
from services.registry.domain.trust.ports import TrustScores

# The limit of one request to authz.
_BATCH = 1000
# Manifests are read and converted in pieces of this many, so that other calls can run.
_PIECE = 20
_CACHED_VERSIONS = 20_000
_USABILITY = {
    pb.USABILITY_ALLOWED: Usability.ALLOWED,
    pb.USABILITY_NEEDS_APPROVAL: Usability.NEEDS_APPROVAL,
}


class AuthzCallPolicy:
    """A CallPolicy. Caches the attributes of versions by digest: a manifest never changes."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        catalogue: Catalogue,
        trust: TrustScores,
        health: VersionHealths,
        clock: Clock,
    ) -> None:
        self._stub, self._catalogue, self._clock = AuthzServiceStub(channel), catalogue, clock
        self._trust, self._health = trust, health
        self._attributes = BoundedCache[tuple[str, str], pb.CallFacts](_CACHED_VERSIONS)

    async def usability_of(self, heads: Sequence[VersionHead]) -> Sequence[Usability]:
        """Return one answer for each version, in order. Raises the error of authz, or SERVICE_UNAVAILABLE."""
        answers: list[Usability] = []
        for start in range(0, len(heads), _BATCH):
            answers += await self._ask(heads[start : start + _BATCH])
        return answers

    async def _ask(self, heads: Sequence[VersionHead]) -> Sequence[Usability]:
        tools: list[pb.CallFacts] = []
        for start in range(0, len(heads), _PIECE):
            tools += await self._current(heads[start : start + _PIECE])
        try:
            response: pb.FilterToolsResponse = await self._stub.FilterTools(pb.FilterToolsRequest(tools=tools))
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        # An answer that is not known forbids.
        return [_USABILITY.get(answer, Usability.FORBIDDEN) for answer in response.tools]

    async def _current(self, heads: Sequence[VersionHead]) -> list[pb.CallFacts]:
        """Return the attributes of some versions, with the trust and the health of this moment."""
        now = self._clock.now().timestamp()
        tools = []
        for head, attributes in zip(heads, await self._lasting(heads), strict=True):
            tool = pb.CallFacts()
            tool.CopyFrom(attributes)
            set_trust_attributes(tool, version_trust(head, self._trust), now)
            tool.tool_health = self._health.health_named(head.name).health.value
            tools.append(tool)
        return tools

    async def _lasting(self, heads: Sequence[VersionHead]) -> list[pb.CallFacts]:
        known = [self._attributes.get((head.name, head.digest)) for head in heads]
        missing = [head for head, attributes in zip(heads, known, strict=True) if attributes is None]
        if missing:
            await asyncio.sleep(0)
        read = {}
        for version in await self._catalogue.with_manifests(missing):
            head = version.head
            read[head.name] = tool_attributes(tool_version(version), 0.0)
            self._attributes.put((head.name, head.digest), read[head.name])
        return [attributes or read[head.name] for head, attributes in zip(heads, known, strict=True)]
