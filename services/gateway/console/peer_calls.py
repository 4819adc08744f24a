"""Calls of the console to the services."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import grpc.aio

from libs.common.rpc.status import from_rpc_error

T = TypeVar("T")


async def answer_of(call: Awaitable[T]) -> T:
    """Return the answer of a service. Raises its refusal as a MeshError."""
    try:
        return await call
    except grpc.aio.AioRpcError as failure:
        raise from_rpc_error(failure) from None
