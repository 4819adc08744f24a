"""The ends of pipes as asyncio's streams."""

from __future__ import annotations

import asyncio
import os

from services.executor.adapters.sandbox.pipe_ends import PipeEnd

Reading = tuple[asyncio.StreamReader, asyncio.ReadTransport]


def open_pipes(count: int) -> list[tuple[int, int]]:
    """Open pipes, all of them or none, each as the end to read from and the end to write to. Raises OSError."""
    opened: list[tuple[int, int]] = []
    try:
        for _ in range(count):
            opened.append(os.pipe2(os.O_CLOEXEC))
    except OSError:
        for pipe in opened:
            for end in pipe:
                os.close(end)
        raise
    return opened


async def attached(writing: int, *reading: int) -> tuple[asyncio.StreamWriter, list[Reading]]:
    """Write to one pipe and read from others. Whoever is canceled on the way leaves none of them open."""
    left, attachments = [*reading], list[asyncio.BaseTransport]()
    try:
        writer = await writer_to(writing)
        attachments.append(writer.transport)
        readers = []
        while left:
            readers.append(await reader_of(left.pop(0)))
            attachments.append(readers[-1][1])
    except BaseException:
        for transport in attachments:
            transport.close()
        for descriptor in left:
            os.close(descriptor)
        raise
    return writer, readers


async def reader_of(descriptor: int) -> Reading:
    """Read from a pipe, which is closed with its transport. Never holds much more than a stream's usual limit in memory."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_read_pipe(lambda: protocol, PipeEnd(descriptor))
    return reader, transport


async def writer_to(descriptor: int) -> asyncio.StreamWriter:
    """Write to a pipe, which is closed with the writer."""
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, PipeEnd(descriptor))
    return asyncio.StreamWriter(transport, protocol, None, loop)
