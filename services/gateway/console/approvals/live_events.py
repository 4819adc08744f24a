"""Tells open pages that tickets changed, as server-sent events. A page then reads what it shows again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import grpc.aio

from libs.common.rpc.stream_slots import StreamLimits

# Browsers open at most six connections to a host, so a person with many open pages must keep some for requests. A page
# without a stream reads its list every half minute.
LIMITS = StreamLimits(per_subject=4, per_tenant=50, per_process=200)
# Changes that follow one another quickly are one event.
_PAUSE_SECONDS = 0.3
_TICK_SECONDS = 1.0
_HEARTBEAT_TICKS = 15
_CHANGED, _HEARTBEAT = b"event: changed\ndata: 1\n\n", b": open\n\n"


async def change_events(stream: Any, ticket: str, is_serving: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
    """Yield an event when the list was read, and after each change of it, or of one ticket if one is named.

    Ends with the stream of the approval service, and when the process drains; the browser then connects again.
    """
    changed = asyncio.Event()
    reading = asyncio.create_task(_read(stream, ticket, changed))
    ticks = 0
    try:
        yield _HEARTBEAT
        while is_serving() and (changed.is_set() or not reading.done()):
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await changed.wait()
            ticks += 1
            if changed.is_set():
                changed.clear()
                yield _CHANGED
                await asyncio.sleep(_PAUSE_SECONDS)
            elif ticks % _HEARTBEAT_TICKS == 0:
                yield _HEARTBEAT
    finally:
        reading.cancel()
        stream.cancel()


async def _read(stream: Any, ticket: str, changed: asyncio.Event) -> None:
    with suppress(grpc.aio.AioRpcError):
        async for piece in stream:
            if piece.synced and (not ticket or not piece.tickets or any(each.name == ticket for each in piece.tickets)):
                changed.set()
