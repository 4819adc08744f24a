"""Reading a body that comes in pieces, too much of it, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.gateway.transport.asgi_types import DisconnectedError
from services.gateway.transport.request.body import read_body


def receiving(*parts: bytes, end: bool = True) -> Any:
    events: list[dict[str, Any]] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if end:
        events[-1]["more_body"] = False

    async def receive() -> Any:
        return events.pop(0) if events else {"type": "http.disconnect"}

    return receive


async def test_pieces_are_put_together() -> None:
    assert await read_body(receiving(b"ab", b"", b"cd"), {}, 4, None) == b"abcd"


async def test_a_body_that_is_not_there_yet_is_waited_for_and_nothing_is_lost() -> None:
    events, arrived = receiving(b"ab", b"cd"), asyncio.Event()

    async def late() -> Any:
        await arrived.wait()
        return await events()

    reading = asyncio.create_task(read_body(late, {}, 4, None))
    await asyncio.sleep(0)
    arrived.set()
    assert await reading == b"abcd"


@pytest.mark.parametrize("parts", [(b"abcde",), (b"abc", b"de")])
async def test_the_count_decides_whatever_was_declared(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(MeshError) as caught:
        await read_body(receiving(*parts), {b"content-length": b"1"}, 4, None)
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE


async def test_a_declared_length_beyond_the_limit_is_not_even_read() -> None:
    async def never() -> Any:
        raise AssertionError("nothing is to be read")

    with pytest.raises(MeshError) as caught:
        await read_body(never, {b"content-length": b"5"}, 4, None)
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE


async def test_a_client_that_leaves_midway_is_gone() -> None:
    with pytest.raises(DisconnectedError):
        await read_body(receiving(b"ab", end=False), {}, 4, None)


async def test_a_body_that_never_begins_ends_with_the_deadline() -> None:
    async def silent() -> Any:
        return await asyncio.Event().wait()

    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(read_body(silent, {}, 4, 20), 10)
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED


async def test_a_body_that_never_ends_ends_with_the_deadline() -> None:
    async def stalled() -> Any:
        if not started:
            started.append(True)
            return {"type": "http.request", "body": b"a", "more_body": True}
        return await asyncio.Event().wait()

    started: list[bool] = []
    with pytest.raises(MeshError) as caught:
        await read_body(stalled, {}, 4, 20)
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED
