"""`POST /token`: exchanges the token of a trusted issuer for one of the mesh. The client needs no token of the mesh."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from toolmesh.authz.v1 import capability_token_pb2 as token_pb
from toolmesh.authz.v1 import token_service_pb2 as pb

from libs.common.auth.dpop import Target, new_proof_cache, proven_thumbprint, refused
from libs.common.auth.origins import origin_of
from libs.common.auth.peers import EDGE
from libs.common.call_context import Call
from libs.common.deadline_header import allowed_seconds
from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from libs.common.telemetry.log import Log
from services.gateway.domain.rate_limits import EXCHANGES, RateLimits
from services.gateway.policy import TOKEN_EXCHANGE
from services.gateway.token_exchange.exchange_form import ACCESS_TOKEN, ExchangeForm, read_exchange_form
from services.gateway.token_exchange.oauth_errors import NO_STORE, OAuthError, refusal_reply
from services.gateway.transport.asgi_types import Receive, Scope, Send
from services.gateway.transport.disconnect import while_connected
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.outcome import answer_once, outcome_of
from services.gateway.transport.reply import Reply
from services.gateway.transport.request.body import read_body
from services.gateway.transport.request.headers import RequestHead, read_head, read_headers
from services.gateway.transport.request.public_address import public_address
from services.gateway.transport.telemetry import Telemetry

if TYPE_CHECKING:
    from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceAsyncStub

TOKEN_PATH = "/token"  # noqa: S105  (a path)
# A subject token of the greatest length, with every character escaped.
MAX_BYTES = 64 * 1024


class TokenExchangeEndpoint:
    """Serves the exchange. Every failure is an OAuth error that also has the error envelope."""

    def __init__(
        self,
        tokens: TokenServiceAsyncStub,
        in_flight: InFlightRequests,
        telemetry: Telemetry,
        log: Log,
        rates: RateLimits,
        *,
        audience: str,
        public_origins: Collection[str],
        sample_ratio: float,
    ) -> None:
        self._tokens, self._in_flight, self._telemetry, self._log = tokens, in_flight, telemetry, log
        self._rates, self._audience, self._origins, self._sample_ratio = rates, audience, public_origins, sample_ratio
        self._used_proofs = new_proof_cache()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The request is authorized by the token in its body alone.
        headers = {name: value for name, value in read_headers(scope).items() if name != b"authorization"}
        head = read_head(scope, headers, self._sample_ratio)
        await answer_once(
            head,
            "token/exchange",
            lambda call: self._reply(scope, headers, head, call, receive),
            send,
            in_flight=self._in_flight,
            telemetry=self._telemetry,
        )

    async def _reply(
        self, scope: Scope, headers: Mapping[bytes, bytes], head: RequestHead, call: Call, receive: Receive
    ) -> tuple[Reply, MeshError | None]:
        outcome = await outcome_of(
            lambda: self._exchange(scope, headers, head, call, receive), call, in_flight=self._in_flight, log=self._log
        )
        if isinstance(outcome, OAuthError | MeshError):
            error = outcome.error if isinstance(outcome, OAuthError) else outcome
            return refusal_reply(outcome, head.trace.trace_id), error
        return Reply(200, [*NO_STORE], dump(outcome)), None

    async def _exchange(
        self, scope: Scope, headers: Mapping[bytes, bytes], head: RequestHead, call: Call, receive: Receive
    ) -> dict[str, Any]:
        if scope["method"] != "POST":
            raise OAuthError("invalid_request", "a token is asked for with POST", (b"allow", b"POST"), status=405)
        # There is no subject yet: the rate is that of the address.
        self._rates.take(f"address {_client_address(scope, headers)}", EXCHANGES)
        if head.refusal is not None:
            raise head.refusal
        call.deadline = head.started + allowed_seconds(head.deadline_ms, None, TOKEN_EXCHANGE.deadline)
        body = await read_body(receive, headers, MAX_BYTES, head.deadline_ms)
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        form = read_exchange_form(body, content_type, self._audience, self._own_origins(scope))
        request = _request(form, self._proven_key(scope))
        if call.deadline <= time.monotonic():
            raise MeshError(Reason.DEADLINE_EXCEEDED)
        answer = await while_connected(scope["state"]["disconnect"], self._tokens.ExchangeToken(request))
        return _answer(answer)

    def _own_origins(self, scope: Scope) -> Collection[str]:
        return self._origins or (origin_of(public_address(scope, ())),)

    def _proven_key(self, scope: Scope) -> str:
        """Return the thumbprint of the key that the client proves to have; empty without a proof (RFC 9449, section
        5)."""
        proofs = [value.decode("latin-1") for name, value in scope["headers"] if name == b"dpop"]
        if not proofs:
            return ""
        if len(proofs) > 1:
            raise refused("several")
        target = Target("POST", TOKEN_PATH, self._origins)
        return proven_thumbprint(proofs[0], target=target, now=time.time(), used=self._used_proofs)


def _request(form: ExchangeForm, thumbprint: str) -> pb.ExchangeTokenRequest:
    request = pb.ExchangeTokenRequest(subject_token=form.subject_token, scopes=form.scopes)
    if thumbprint:
        request.confirmation.CopyFrom(token_pb.Confirmation(jwk_thumbprint=thumbprint))
    return request


def _answer(answer: pb.ExchangeTokenResponse) -> dict[str, Any]:
    claims = answer.claims
    return {
        "access_token": answer.token,
        "issued_token_type": ACCESS_TOKEN,
        "token_type": "DPoP" if claims.confirmation.startswith("jkt:") else "Bearer",
        "expires_in": max(claims.expire_time.seconds - int(time.time()), 0),
        "scope": " ".join(claims.scopes),
    }


def _client_address(scope: Scope, headers: Mapping[bytes, bytes]) -> str:
    """Return the address of the client. Only the edge is believed, which appends the address that it sees."""
    if scope["state"].get("peer", "") == EDGE:
        return headers.get(b"x-forwarded-for", b"").decode("latin-1").rpartition(",")[2].strip()[:64]
    return str((scope.get("client") or ("",))[0])
