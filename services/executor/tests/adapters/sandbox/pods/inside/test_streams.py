"""Messages over a stream, from a peer that may send anything."""

from __future__ import annotations

import asyncio

import pytest

from services.executor.adapters.sandbox.pods.inside import streams
from services.executor.adapters.sandbox.pods.inside.multiplexer import Multiplexer


async def received(content: bytes, chunk: int = 5) -> list[object]:
    """Return what arrives of these bytes, until no message does."""
    connection = Multiplexer(asyncio.Queue[bytes]().get, lambda _: asyncio.sleep(0))
    stream = connection.stream(0)
    for at in range(0, len(content), chunk):
        stream.take(content[at : at + chunk])
    stream.take_end()
    messages, found = streams.Messages(stream), list[object]()
    while (message := await messages.receive()) is not None:
        found.append(message)
    return found


async def test_messages_are_lines() -> None:
    assert await received(b'{"one": 1}\n{"two": [2]}\n') == [{"one": 1}, {"two": [2]}]


@pytest.mark.parametrize("sent", [b"[]\n", b"no json\n", b'{"half": ', b"[" * 100_000 + b"\n", b"\xff\n"])
async def test_what_is_no_message_ends_the_messages(sent: bytes) -> None:
    assert await received(b'{"one": 1}\n' + sent, 1000) == [{"one": 1}]


async def test_a_message_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_MESSAGE_BYTES", 1000)
    assert await received(b'{"text": "' + b"x" * 5000 + b'"}\n', 500) == []
