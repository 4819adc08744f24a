"""`POST /token` over ASGI: answers, OAuth errors, rates and proofs."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlencode

import grpc.aio
import orjson
import pytest
from toolmesh.authz.v1 import token_service_pb2 as pb

from libs.common.auth.origins import parse_origins
from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.gateway.domain.rate_limits import EXCHANGES, RateLimits
from services.gateway.token_exchange.endpoint import MAX_BYTES, TokenExchangeEndpoint
from services.gateway.token_exchange.exchange_form import ACCESS_TOKEN, FORM_TYPE, GRANT_TYPE
from services.gateway.transport.disconnect import DisconnectWatcher
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.telemetry import Telemetry
from tests.harness.clients.holder import Holder

PLACE = "https://mesh.example/token"
FORM = {"grant_type": GRANT_TYPE, "subject_token": "a.b.c", "subject_token_type": ACCESS_TOKEN}


class Authz:
    """The token service: answers with a token of the requested scopes, or fails."""

    def __init__(self) -> None:
        self.asked: list[pb.ExchangeTokenRequest] = []
        self.failure: Exception | None = None

    async def ExchangeToken(self, request: pb.ExchangeTokenRequest) -> pb.ExchangeTokenResponse:
        self.asked.append(request)
        if self.failure is not None:
            raise self.failure
        answer = pb.ExchangeTokenResponse(token="new.token.text")
        answer.claims.expire_time.FromSeconds(int(time.time()) + 600)
        answer.claims.scopes.extend(request.scopes or ["audit:read", "tools:call"])
        if request.HasField("confirmation"):
            answer.claims.confirmation = "jkt:" + request.confirmation.jwk_thumbprint
        return answer


class Edge:
    """Sends requests to the endpoint as the edge does."""

    def __init__(self) -> None:
        self.authz, log = Authz(), Log("test", level="error", descriptor=2)
        in_flight = InFlightRequests(10)
        in_flight.serving = True
        tokens: Any = self.authz
        self._endpoint = TokenExchangeEndpoint(
            *(tokens, in_flight, Telemetry(log, Tracing()), log, RateLimits(lambda: 0.0)),
            audience="toolmesh",
            public_origins=parse_origins("https://mesh.example"),
            sample_ratio=0.0,
        )

    async def post(
        self, body: bytes | None = None, *headers: tuple[bytes, bytes], method: str = "POST", address: str = "192.0.2.1"
    ) -> tuple[int, dict[bytes, bytes], dict[str, Any]]:
        sent: list[Any] = []
        events = [{"type": "http.request", "body": urlencode(FORM).encode() if body is None else body}]

        async def receive() -> Any:
            return events.pop(0) if events else await asyncio.Event().wait()

        async def send(event: Any) -> None:
            sent.append(event)

        forwarded = (b"x-forwarded-for", f"203.0.113.9, {address}".encode())
        scope = {
            "path": "/token",
            "method": method,
            "headers": [(b"content-type", FORM_TYPE.encode()), forwarded, *headers],
            "state": {"peer": "edge", "disconnect": DisconnectWatcher()},
        }
        await self._endpoint(scope, receive, send)
        return sent[0]["status"], dict(sent[0]["headers"]), orjson.loads(sent[1]["body"])


@pytest.fixture
def edge() -> Edge:
    return Edge()


async def test_a_token_is_answered_as_the_standard_says_and_stored_nowhere(edge: Edge) -> None:
    status, headers, answer = await edge.post()
    assert 0 <= 600 - answer.pop("expires_in") <= 60
    assert (status, answer) == (
        200,
        {
            "access_token": "new.token.text",
            "issued_token_type": ACCESS_TOKEN,
            "token_type": "Bearer",
            "scope": "audit:read tools:call",
        },
    )
    assert headers[b"cache-control"] == b"no-store"
    assert edge.authz.asked == [pb.ExchangeTokenRequest(subject_token="a.b.c")]


async def test_the_scopes_that_are_asked_for_are_passed_on(edge: Edge) -> None:
    answer = (await edge.post(urlencode({**FORM, "scope": "tools:call"}).encode()))[2]
    assert (answer["scope"], list(edge.authz.asked[0].scopes)) == ("tools:call", ["tools:call"])


async def test_a_proof_binds_the_new_token_to_its_key(edge: Edge) -> None:
    holder = Holder()
    proof = holder.proof("", PLACE, ath=None)
    status, _, answer = await edge.post(None, (b"dpop", proof.encode()))
    assert (status, answer["token_type"]) == (200, "DPoP")
    assert edge.authz.asked[0].confirmation.jwk_thumbprint == holder.thumbprint


async def test_a_proof_that_is_used_again_or_for_another_place_is_refused(edge: Edge) -> None:
    holder = Holder()
    proof = (b"dpop", holder.proof("", PLACE, ath=None).encode())
    elsewhere = (b"dpop", holder.proof("", "https://other.example/token", ath=None).encode())
    await edge.post(None, proof)
    for headers in ((proof,), (elsewhere,), (elsewhere, proof), ((b"dpop", b"garbage"),)):
        status, _, answer = await edge.post(None, *headers)
        assert (status, answer["error"]) == (400, "invalid_dpop_proof")
    assert len(edge.authz.asked) == 1


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [
        (Reason.TOKEN_EXPIRED, 400, "invalid_request"),
        (Reason.TOKEN_AUDIENCE_INVALID, 400, "invalid_request"),
        (Reason.AUTHORITY_EXCEEDED, 400, "invalid_scope"),
        (Reason.SERVICE_UNAVAILABLE, 503, "temporarily_unavailable"),
        (Reason.OVERLOADED, 429, "temporarily_unavailable"),
        (Reason.INTERNAL, 500, "server_error"),
    ],
)
async def test_a_refusal_of_authz_is_an_error_of_the_standard_with_the_envelope_beside_it(
    edge: Edge, reason: Reason, status: int, code: str
) -> None:
    edge.authz.failure = MeshError(reason)
    found, headers, answer = await edge.post()
    assert (found, answer["error"], answer["envelope"]["reason"]) == (status, code, reason.name)
    assert answer["error_description"]
    assert headers[b"cache-control"] == b"no-store"
    assert (b"retry-after" in headers) is (status in (429, 503))


async def test_a_lost_authz_and_an_error_of_the_gateway_tell_nothing(edge: Edge) -> None:
    metadata = grpc.aio.Metadata()
    edge.authz.failure = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, metadata, metadata, "Socket closed")
    assert (await edge.post())[2]["error"] == "temporarily_unavailable"
    edge.authz.failure = ZeroDivisionError("a secret inside")
    status, _, answer = await edge.post()
    assert (status, answer["error"]) == (500, "server_error")
    assert "secret" not in orjson.dumps(answer).decode()


async def test_another_method_and_a_body_that_is_too_large_are_refused(edge: Edge) -> None:
    status, headers, answer = await edge.post(method="GET")
    assert (status, headers[b"allow"], answer["error"]) == (405, b"POST", "invalid_request")
    status, _, answer = await edge.post(b"x" * (MAX_BYTES + 1))
    assert (status, answer["error"]) == (413, "invalid_request")
    assert edge.authz.asked == []


async def test_authorization_headers_are_no_concern_of_the_exchange(edge: Edge) -> None:
    for value in (b"Basic YTpi", b"Bearer garbage", b"DPoP x"):
        assert (await edge.post(None, (b"authorization", value)))[0] == 200


async def test_each_address_has_a_rate_of_its_own(edge: Edge) -> None:
    """The edge appends the address that it sees; what a client wrote before it does not count."""
    found = [(await edge.post())[0] for _ in range(EXCHANGES.burst + 1)]
    assert found == [200] * EXCHANGES.burst + [429]
    _, headers, answer = await edge.post()
    assert (answer["error"], answer["envelope"]["metadata"]) == ("temporarily_unavailable", {"limit": "exchanges"})
    assert int(headers[b"retry-after"]) >= 1
    assert (await edge.post(address="192.0.2.2"))[0] == 200
