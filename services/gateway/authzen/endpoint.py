"""The AuthZEN 1.0 endpoints `/access/v1/evaluation` and `/access/v1/evaluations`, and their discovery document."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from libs.common.call_context import Call
from libs.common.deadline_header import allowed_seconds
from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from libs.common.telemetry.log import Log
from services.gateway.authzen.model import MAX_BYTES
from services.gateway.policy import EVALUATIONS
from services.gateway.transport.asgi_types import Receive, Scope, Send
from services.gateway.transport.disconnect import while_connected
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.outcome import FormError, answer_once, outcome_of
from services.gateway.transport.reply import Reply, failure
from services.gateway.transport.request.body import read_body
from services.gateway.transport.request.dpop_check import DpopCheck
from services.gateway.transport.request.headers import RequestHead, is_json, read_head, read_headers
from services.gateway.transport.request.public_address import public_address
from services.gateway.transport.telemetry import Telemetry

EVALUATION, EVALUATIONS_PATH = "/access/v1/evaluation", "/access/v1/evaluations"
CONFIGURATION = "/.well-known/authzen-configuration"

Evaluator = Callable[[bytes, str, str], Awaitable[dict[str, Any]]]


class AuthzenEndpoint:
    """Serves evaluations. A denial is a result, with 200; an error has the status of the error table."""

    def __init__(
        self,
        evaluators: Mapping[str, Evaluator],
        in_flight: InFlightRequests,
        telemetry: Telemetry,
        log: Log,
        dpop_check: DpopCheck,
        sample_ratio: float,
    ) -> None:
        self._evaluators, self._in_flight, self._telemetry, self._log = evaluators, in_flight, telemetry, log
        self._sample_ratio = sample_ratio
        self._dpop_check = dpop_check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        head = read_head(scope, headers, self._sample_ratio)
        if head.token and head.refusal is None:
            head.refusal = self._dpop_check.check(scope, headers, head.token)
        await answer_once(
            head,
            "authzen" + scope["path"].removeprefix("/access/v1"),
            lambda call: self._reply(scope, headers, head, call, receive),
            send,
            in_flight=self._in_flight,
            telemetry=self._telemetry,
        )

    async def _reply(
        self, scope: Scope, headers: Mapping[bytes, bytes], head: RequestHead, call: Call, receive: Receive
    ) -> tuple[Reply, MeshError | None]:
        outcome = await outcome_of(
            lambda: self._answer(scope, headers, head, call, receive), call, in_flight=self._in_flight, log=self._log
        )
        trace_id = head.trace.trace_id
        if isinstance(outcome, FormError):
            return failure(outcome.error, trace_id, status=outcome.status, headers=outcome.headers), outcome.error
        if isinstance(outcome, MeshError):
            return failure(outcome, trace_id), outcome
        return Reply(200, [], dump(outcome)), None

    async def _answer(
        self, scope: Scope, headers: Mapping[bytes, bytes], head: RequestHead, call: Call, receive: Receive
    ) -> dict[str, Any]:
        if scope["method"] != "POST":
            raise FormError("evaluations are sent with POST", (b"allow", b"POST"), status=405)
        if not is_json(headers):
            # AuthZEN 1.0 answers every malformed request with 400.
            raise FormError("the body must be application/json in UTF-8")
        if head.refusal is not None:
            raise head.refusal
        if not head.token:
            raise MeshError(Reason.UNAUTHENTICATED)
        call.deadline = head.started + allowed_seconds(head.deadline_ms, None, EVALUATIONS.deadline)
        payload = await read_body(receive, headers, MAX_BYTES, head.deadline_ms)
        if call.deadline <= time.monotonic():
            raise MeshError(Reason.DEADLINE_EXCEEDED)
        evaluate, trace_id = self._evaluators[scope["path"]], head.trace.trace_id
        return await while_connected(scope["state"]["disconnect"], evaluate(payload, head.token, trace_id))


def configuration(scope: Scope, public_origins: Collection[str]) -> Reply:
    """Return the discovery document, with the public address of the mesh."""
    here = public_address(scope, public_origins)
    document = {
        "policy_decision_point": here,
        "access_evaluation_endpoint": here + EVALUATION,
        "access_evaluations_endpoint": here + EVALUATIONS_PATH,
    }
    return Reply(200, [(b"cache-control", b"public, max-age=300")], dump(document))
