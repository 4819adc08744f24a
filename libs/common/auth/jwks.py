"""The mesh's public keys, fetched from the issuer over the mesh's own mutual TLS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import grpc.aio
from toolmesh.authz.v1.authz_service_pb2 import GetJwksRequest
from toolmesh.authz.v1.authz_service_pb2_grpc import AuthzServiceStub

from libs.common.auth.tokens import TokenVerifier
from libs.common.rpc.client import channel_to
from libs.common.rpc.status import from_rpc_error
from libs.common.settings import Address, ProcessSettings


def authz_channel(address: Address, settings: ProcessSettings, *, repeatable: Sequence[str] = ()) -> grpc.aio.Channel:
    """Open the channel to the issuer. Fetching keys is repeated when it fails, and so are the methods named beside it."""
    service = "toolmesh.authz.v1.AuthzService"
    return channel_to("authz", address, settings, service=service, retry=["GetJwks", *repeatable])


def verifier_from(channel: grpc.aio.Channel, settings: ProcessSettings) -> TokenVerifier:
    """Return what verifies the tokens of callers, with the keys that the issuer publishes."""
    return TokenVerifier(jwks_from(channel), issuer=settings.issuer, audience=settings.audience)


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
