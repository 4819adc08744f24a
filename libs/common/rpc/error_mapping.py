"""Second stage: turns every exception into a gRPC status with an envelope."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from libs.common.call_context import Call
from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error, status_code, status_text, trailing_details
from libs.common.telemetry.log import Log

# Cancelled calls and those already answered need no mapping.
_NOT_OURS = (asyncio.CancelledError, grpc.aio.AbortError, GeneratorExit)


class ErrorMapping:
    """Maps exceptions to statuses. An unexpected one becomes INTERNAL with a fixed text; its cause is only logged."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def abort(self, call: Call, context: Any, error: BaseException) -> BaseException:
        """Abort the call with the status of an exception; return the exception that ends the call."""
        if isinstance(error, _NOT_OURS):
            return error
        if isinstance(error, MeshError):
            return await _abort(context, error)
        if isinstance(error, grpc.aio.AioRpcError):
            return await _abort(context, from_rpc_error(error))
        if isinstance(error, TimeoutError):
            return await _abort(context, MeshError(Reason.DEADLINE_EXCEEDED))
        if isinstance(error, Exception):
            self._log.error("unexpected error", method=call.method, cause=error)
            return await _abort(context, MeshError(Reason.INTERNAL))
        return error


async def _abort(context: Any, error: MeshError) -> BaseException:
    try:
        await context.abort(status_code(error), status_text(error), trailing_details(error))
    except grpc.aio.AbortError as aborted:
        return aborted
    raise AssertionError("abort always raises")
