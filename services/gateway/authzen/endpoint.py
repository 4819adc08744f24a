"""`POST /access/v1/evaluation` and `/access/v1/evaluations`, and where to find them: AuthZEN 1.0 over HTTP."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from libs.common.auth.peers import EDGE
from libs.common.call_context import Call, enter
from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from libs.common.telemetry.log import Log
from services.gateway.authzen.model import MAX_BYTES
from services.gateway.domain.deadline import allowed_seconds
from services.gateway.policy import EVALUATIONS
from services.gateway.transport.asgi_types import DisconnectedError, Header, Receive, Scope, Send
from services.gateway.transport.body import read_body
from services.gateway.transport.call_pipeline import begin_call
from services.gateway.transport.disconnect import while_connected
from services.gateway.transport.dpop_check import HolderCheck
from services.gateway.transport.load import Load
from services.gateway.transport.reply import Reply, failure, marks_of, respond
from services.gateway.transport.request_headers import Arrival, is_json, read_arrival, read_headers
from services.gateway.transport.telemetry import CANCELED, Telemetry, code_of

EVALUATION, EVALUATIONS_PATH = "/access/v1/evaluation", "/access/v1/evaluations"
CONFIGURATION = "/.well-known/authzen-configuration"
_AUTHORITY = re.compile(rb"[A-Za-z0-9.-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")

Answering = Callable[[bytes, str, str], Awaitable[dict[str, Any]]]


class AuthzenEndpoint:
    """Answers evaluations. A denial is an answer, with 200; whoever could not ask gets the status of the error table."""

    def __init__(
        self, answering: Mapping[str, Answering], load: Load, telemetry: Telemetry, log: Log, sample_ratio: float
    ) -> None:
        self._answering, self._load, self._telemetry, self._log = answering, load, telemetry, log
        self._sample_ratio = sample_ratio
        self._prove = HolderCheck()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        arrival = read_arrival(scope, headers, self._sample_ratio)
        if arrival.token and arrival.refusal is None:
            arrival.refusal = self._prove(scope, headers, arrival.token)
        call = begin_call(arrival)
        call.method = "authzen" + scope["path"].removeprefix("/access/v1")
        enter(call)
        span, code = self._telemetry.begin(call), CANCELED
        try:
            reply, error = await self._reply(scope, headers, arrival, call, receive)
            code = code_of(error)
            await respond(send, reply, *marks_of(arrival), *self._load.farewell())
        except DisconnectedError:
            return
        finally:
            self._telemetry.end(call, span, code)

    async def _reply(
        self, scope: Scope, headers: Mapping[bytes, bytes], arrival: Arrival, call: Call, receive: Receive
    ) -> tuple[Reply, MeshError | None]:
        trace_id = arrival.trace.trace_id
        try:
            with self._load:
                answer = await self._answer(scope, headers, arrival, call, receive)
            return Reply(200, [], dump(answer)), None
        except DisconnectedError:
            raise
        except asyncio.CancelledError:
            # The client is still there, so it is the process that ends; whoever waits is told.
            ending = MeshError(Reason.SERVICE_UNAVAILABLE)
            return failure(ending, trace_id), ending
        except _WrongFormError as wrong:
            return failure(wrong.error, trace_id, status=wrong.status, headers=wrong.headers), wrong.error
        except MeshError as error:
            return failure(error, trace_id), error
        except Exception as cause:
            self._log.error("unforeseen", method=call.method, cause=cause)
            unforeseen = MeshError(Reason.INTERNAL)
            return failure(unforeseen, trace_id), unforeseen

    async def _answer(
        self, scope: Scope, headers: Mapping[bytes, bytes], arrival: Arrival, call: Call, receive: Receive
    ) -> dict[str, Any]:
        if scope["method"] != "POST":
            raise _WrongFormError(405, "evaluations are asked with POST", (b"allow", b"POST"))
        if not is_json(headers):
            raise _WrongFormError(415, "the body must be application/json in UTF-8")
        if arrival.refusal is not None:
            raise arrival.refusal
        if not arrival.token:
            raise MeshError(Reason.UNAUTHENTICATED)
        call.deadline = arrival.started + allowed_seconds(arrival.deadline_ms, None, EVALUATIONS.deadline)
        payload = await read_body(receive, headers, MAX_BYTES, arrival.deadline_ms)
        if call.deadline <= time.monotonic():
            raise MeshError(Reason.DEADLINE_EXCEEDED)
        answering, trace_id = self._answering[scope["path"]], arrival.trace.trace_id
        return await while_connected(scope["state"]["presence"], answering(payload, arrival.token, trace_id))


class _WrongFormError(Exception):
    """The request is none that HTTP lets this path have."""

    def __init__(self, status: int, message: str, *headers: Header) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers
        self.error = MeshError(Reason.INVALID_REQUEST, message=message)


def configuration(scope: Scope) -> Reply:
    """Say where the endpoints are, as seen by whoever asks. Raises INVALID_REQUEST for a host that is none."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    authority = headers.get(b"host", b"")
    if not _AUTHORITY.fullmatch(authority):
        raise MeshError(Reason.INVALID_REQUEST, message="the host is not one")
    told = scope["state"].get("peer", "") == EDGE and headers.get(b"x-forwarded-proto") == b"http"
    here = f"{'http' if told else 'https'}://{authority.decode()}"
    found = {
        "policy_decision_point": here,
        "access_evaluation_endpoint": here + EVALUATION,
        "access_evaluations_endpoint": here + EVALUATIONS_PATH,
    }
    return Reply(200, [(b"cache-control", b"public, max-age=300")], dump(found))
