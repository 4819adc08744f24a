"""The outcome of a request that has one answer: the answer, or the error that the client gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc.aio

from libs.common.call_context import Call
from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from libs.common.telemetry.log import Log
from services.gateway.transport.asgi_types import DisconnectedError, Header
from services.gateway.transport.in_flight import InFlightRequests

T = TypeVar("T")


class FormError(Exception):
    """The request has the wrong HTTP method, media type or form."""

    def __init__(self, message: str, *headers: Header, status: int = 400) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers
        self.error = MeshError(Reason.INVALID_REQUEST, message=message)


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
