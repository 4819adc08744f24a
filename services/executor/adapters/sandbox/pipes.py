"""Pipes as asyncio streams."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

PipeReader = tuple[asyncio.StreamReader, asyncio.ReadTransport]


def open_pipes(count: int) -> list[tuple[int, int]]:
    """Open all of the pipes or none, each as (read end, write end). Raises OSError."""
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


async def attach_pipes(writing: int, *reading: int) -> tuple[asyncio.StreamWriter, list[PipeReader]]:
    """Open a writer on one pipe and readers on the others. Closes all of them if canceled."""
    pending, transports = [*reading], list[asyncio.BaseTransport]()
    try:
        writer = await open_writer(writing)
        transports.append(writer.transport)
        readers = []
        while pending:
            readers.append(await open_reader(pending.pop(0)))
            transports.append(readers[-1][1])
    except BaseException:
        for transport in transports:
            transport.close()
        for descriptor in pending:
            os.close(descriptor)
        raise
    return writer, readers


async def open_reader(descriptor: int) -> PipeReader:
    """Open a StreamReader with the default buffer limit; closing its transport closes the pipe."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_read_pipe(lambda: protocol, PipeEnd(descriptor))
    return reader, transport


async def open_writer(descriptor: int) -> asyncio.StreamWriter:
    """Open a StreamWriter; closing it closes the pipe."""
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, PipeEnd(descriptor))
    return asyncio.StreamWriter(transport, protocol, None, loop)


class PipeEnd:
    """One end of a pipe that is closed only once.

    uvloop closes the descriptor itself and then closes the file object. By then another thread may have got the same
    descriptor number for a different file, so `close` checks that the number still refers to this pipe.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._identity = _identity(descriptor)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Close the descriptor if it still refers to this pipe."""
        with suppress(OSError):
            if _identity(self._descriptor) == self._identity:
                os.close(self._descriptor)


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
