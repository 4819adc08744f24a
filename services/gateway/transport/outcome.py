"""A request that has one answer: its span, its reply, and the error that the client gets instead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc.aio

from libs.common.call_context import Call, enter
from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from libs.common.telemetry.log import Log
from services.gateway.transport.asgi_types import DisconnectedError, Header, Send
from services.gateway.transport.call_pipeline import begin_call
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.reply import Reply, correlation_headers, respond
from services.gateway.transport.request.headers import RequestHead
from services.gateway.transport.telemetry import CANCELED, Telemetry, code_of

T = TypeVar("T")


class FormError(Exception):
    """The request has the wrong HTTP method, media type or form."""

    def __init__(self, message: str, *headers: Header, status: int = 400) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers
        self.error = MeshError(Reason.INVALID_REQUEST, message=message)


async def answer_once(
    head: RequestHead,
    method: str,
    reply: Callable[[Call], Awaitable[tuple[Reply, MeshError | None]]],
    send: Send,
    *,
    in_flight: InFlightRequests,
    telemetry: Telemetry,
) -> None:
    """Send the one reply to a request, within a span of its own. A client that has left gets none."""
    call = begin_call(head)
    call.method = method
    enter(call)
    span, code = telemetry.begin(call), CANCELED
    try:
        answer, error = await reply(call)
        code = code_of(error)
        await respond(send, answer, *correlation_headers(head), *in_flight.close_headers())
    except DisconnectedError:
        return
    finally:
        telemetry.end(call, span, code)


async def outcome_of(
    answer: Callable[[], Awaitable[T]], call: Call, *, in_flight: InFlightRequests, log: Log
) -> T | FormError | MeshError:
    """Return what `answer` returns, or why there is no answer. Raises DisconnectedError if the client has left."""
    try:
        with in_flight:
            return await answer()
    except DisconnectedError:
        raise
    except asyncio.CancelledError:
        # The client is still connected, so the process is ending.
        return MeshError(Reason.SERVICE_UNAVAILABLE)
    except (FormError, MeshError) as error:
        return error
    except grpc.aio.AioRpcError as failure:
        return from_rpc_error(failure)
    except Exception as cause:
        log.error("unexpected error", method=call.method, cause=cause)
        return MeshError(Reason.INTERNAL)
