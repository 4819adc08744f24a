"""Asks authz for statements about callers."""

from __future__ import annotations

import grpc.aio
from toolmesh.authz.v1 import token_service_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2_grpc as rpc

from libs.common.call_context import current_call
from libs.common.rpc.status import from_rpc_error

_SECONDS = 5.0


class AuthzAssertions:
    """Implements CallerAssertions. The channel carries the caller's token."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = rpc.TokenServiceStub(channel)

    def caller_id(self) -> str:
        """Return the id of the caller's token, which names the subject, the agents and the tenant."""
        call = current_call()
        return call.identity.token_id if call is not None and call.identity is not None else ""

    async def issue(self, audience: str) -> str:
        """Implement `CallerAssertions.issue`."""
        request = pb.IssueAssertionRequest(audience=audience)
        try:
            response: pb.IssueAssertionResponse = await self._stub.IssueAssertion(request, timeout=_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        return response.assertion
