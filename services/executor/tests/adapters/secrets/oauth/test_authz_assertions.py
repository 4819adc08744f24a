"""Statements about the caller of the current call."""

from __future__ import annotations

from types import SimpleNamespace

import grpc.aio
import pytest
from toolmesh.authz.v1 import token_service_pb2 as pb

from libs.common.auth.identity import Identity
from libs.common.call_context import Call, enter
from libs.common.errors import MeshError
from libs.common.trace_context import RemoteTrace
from services.executor.adapters.secrets.oauth.authz_assertions import AuthzAssertions


def assertions_with(issue: object) -> AuthzAssertions:
    channel = grpc.aio.insecure_channel("127.0.0.1:1")
    made = AuthzAssertions(channel)
    made._stub = SimpleNamespace(IssueAssertion=issue)  # type: ignore[assignment]
    return made


async def test_the_caller_is_that_of_the_current_call() -> None:
    made = assertions_with(None)
    assert made.caller_id() == ""
    identity = Identity("did:web:alice", "token-7", 0.0)
    enter(Call("/x", RemoteTrace(None, "", 0.0), identity=identity))
    assert made.caller_id() == "token-7"


async def test_it_asks_for_one_audience_and_passes_errors_on() -> None:
    async def issue(request: pb.IssueAssertionRequest, timeout: float) -> pb.IssueAssertionResponse:
        return pb.IssueAssertionResponse(assertion=f"about {request.audience}")

    assert await assertions_with(issue).issue("https://login.example.com") == "about https://login.example.com"

    async def fail(request: pb.IssueAssertionRequest, timeout: float) -> pb.IssueAssertionResponse:
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())

    with pytest.raises(MeshError):
        await assertions_with(fail).issue("https://login.example.com")
