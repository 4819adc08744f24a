"""The mesh's public keys, fetched from the issuer over the mesh's own mutual TLS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import grpc.aio
from toolmesh.authz.v1.authz_service_pb2 import GetJwksRequest
from toolmesh.authz.v1.authz_service_pb2_grpc import AuthzServiceStub

from libs.common.rpc.status import from_rpc_error


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
