"""The ends of pipes as asyncio's streams."""

from __future__ import annotations

import asyncio
import os

from services.executor.adapters.sandbox.pipe_ends import PipeEnd


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


async def reader_of(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
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
