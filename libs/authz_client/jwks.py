"""Fetches the mesh's public keys from the issuer, over the mesh's mutual TLS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import grpc.aio
from toolmesh.authz.v1.authz_service_pb2 import GetJwksRequest
from toolmesh.authz.v1.authz_service_pb2_grpc import AuthzServiceStub

from libs.authz_client.invalidations import IntrospectionFallback, InvalidationFollower
from libs.common.auth.revocations import RevocationView
from libs.common.auth.tokens import TokenVerifier
from libs.common.rpc.client import channel_to
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.setting_types import Address, PeerAddress
from libs.common.runtime.settings import ProcessSettings
from libs.common.telemetry.log import Log


def authz_channel(
    address: Address | PeerAddress, settings: ProcessSettings, *, repeatable: Sequence[str] = ()
) -> grpc.aio.Channel:
    """Open the channel to the issuer. Fetching keys and the methods in `repeatable` are retried."""
    service = "toolmesh.authz.v1.AuthzService"
    return channel_to("authz", address, settings, service=service, retry=["GetJwks", *repeatable])


class FollowingVerifier(TokenVerifier):
    """Verifies tokens with the issuer's public keys and refuses revoked ones."""

    def __init__(self, channel: grpc.aio.Channel, settings: ProcessSettings, log: Log) -> None:
        self.view = RevocationView(SystemClock())
        super().__init__(
            jwks_from(channel),
            issuer=settings.issuer,
            audience=settings.audience,
            max_lifetime=settings.max_token_lifetime,
            revocations=self.view,
            second_opinion=IntrospectionFallback(channel),
        )
        self._follower = InvalidationFollower(channel, self.view, log)

    async def start(self) -> None:
        await self._follower.start()

    async def stop(self) -> None:
        await self._follower.stop()


def verifier_from(channel: grpc.aio.Channel, settings: ProcessSettings, log: Log) -> FollowingVerifier:
    """Return the verifier of callers' tokens. The server that uses it starts and stops it."""
    return FollowingVerifier(channel, settings, log)


def jwks_from(channel: grpc.aio.Channel, *, timeout: float = 2.0) -> Callable[[], Awaitable[bytes]]:
    """Return a fetcher for a TokenVerifier."""
    stub = AuthzServiceStub(channel)

    async def fetch() -> bytes:
        try:
            response = await stub.GetJwks(GetJwksRequest(), timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        return response.jwks

    return fetch
