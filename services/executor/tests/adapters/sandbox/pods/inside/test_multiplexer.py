"""The streams between an executor and a pod: order, windows, and peers that break the protocol."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from services.executor.adapters.sandbox.pods.inside.multiplexer import (
    MAX_STREAMS,
    WINDOW_BYTES,
    Multiplexer,
    ProtocolError,
    Stream,
)
from services.executor.tests.waiting import until

DATA, END, CREDIT, OPEN = range(4)


def frame(kind: int, number: int, content: bytes = b"") -> bytes:
    return struct.pack(">BIH", kind, number, len(content)) + content


class Pair(NamedTuple):
    """Two ends of one connection, and the streams that the second one got."""

    near: Multiplexer
    far: Multiplexer
    opened: list[Stream]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    queues: list[asyncio.Queue[bytes]] = [asyncio.Queue(), asyncio.Queue()]
    opened = list[Stream]()
    near = Multiplexer(queues[0].get, queues[1].put)
    far = Multiplexer(queues[1].get, queues[0].put, opened.append)
    tasks = [asyncio.create_task(each.run()) for each in (near, far)]
    for end in (near, far):
        end.stream(1)
        end.stream(2)
    yield Pair(near, far, opened)
    for queue in queues:
        await queue.put(b"")
    await asyncio.wait(tasks)


async def read_all(stream: Stream) -> bytes:
    content = b""
    while chunk := await stream.read():
        content += chunk
    return content


async def test_bytes_arrive_in_order_and_end(pair: Pair) -> None:
    content = bytes(range(256)) * 10_000
    reading = asyncio.create_task(read_all(pair.far.stream(1)))
    await pair.near.stream(1).write(content)
    await pair.near.stream(1).end()
    assert await reading == content


async def test_a_stream_that_is_not_read_holds_up_its_writer_alone(pair: Pair) -> None:
    writing = asyncio.create_task(pair.near.stream(1).write(bytes(2 * WINDOW_BYTES)))
    await pair.near.stream(2).write(b"other")
    assert await pair.far.stream(2).read() == b"other"
    assert not writing.done()
    received = 0
    while received < 2 * WINDOW_BYTES:
        received += len(await pair.far.stream(1).read())
    await writing


async def test_streams_can_be_opened_and_are_forgotten(pair: Pair) -> None:
    for number in range(MAX_STREAMS * 2):
        stream = await pair.near.open()
        await stream.write(b"%d" % number)
        await stream.end()
        await until(lambda: pair.opened[number:])  # noqa: B023
        assert await read_all(pair.opened[number]) == b"%d" % number
        await pair.opened[number].end()
        assert await read_all(stream) == b""


async def test_too_many_streams_are_refused(pair: Pair) -> None:
    for _ in range(MAX_STREAMS - 2):
        await pair.near.open()
    with pytest.raises(ConnectionError):
        await pair.near.open()


async def test_a_lost_connection_ends_reads_and_fails_writes() -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()
    connection = Multiplexer(received.get, lambda _: asyncio.sleep(0))
    stream = connection.stream(1)
    running = asyncio.create_task(connection.run())
    blocked = asyncio.create_task(stream.write(bytes(WINDOW_BYTES + 1)))
    await received.put(frame(DATA, 1, b"last"))
    await received.put(b"")
    await running
    assert [await stream.read(), await stream.read()] == [b"last", b""]
    with pytest.raises(ConnectionError):
        await blocked


@pytest.mark.parametrize(
    "sent",
    [
        frame(DATA, 1, bytes(32 << 10)) * 9,
        frame(DATA, 1, bytes((32 << 10) + 1)),
        frame(END, 1) + frame(DATA, 1, b"x"),
        frame(OPEN, 20),
        frame(9, 1),
        frame(CREDIT, 1, b"x"),
    ],
    ids=["window", "frame", "after the end", "open", "kind", "credit"],
)
async def test_a_peer_that_breaks_the_protocol_ends_the_connection(sent: bytes) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()
    connection = Multiplexer(received.get, lambda _: asyncio.sleep(0))
    connection.stream(1)
    await received.put(sent)
    with pytest.raises(ProtocolError):
        await connection.run()


async def test_frames_may_arrive_in_pieces() -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()
    connection = Multiplexer(received.get, lambda _: asyncio.sleep(0))
    stream = connection.stream(1)
    for byte in frame(DATA, 1, b"hello") + frame(END, 1):
        await received.put(bytes([byte]))
    await received.put(b"")
    await connection.run()
    assert await read_all(stream) == b"hello"
