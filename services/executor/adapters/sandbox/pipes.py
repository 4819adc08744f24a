"""Pipes as asyncio streams."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from services.executor.adapters.sandbox.port import EventPipes

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


class ProcessPipes:
    """The executor's ends of the pipes of one process, as streams."""

    def __init__(self, writers: list[asyncio.StreamWriter], readers: list[PipeReader]) -> None:
        self.writers, self._readers = writers, readers

    @property
    def readers(self) -> list[asyncio.StreamReader]:
        """The streams to read."""
        return [reader for reader, _ in self._readers]

    @property
    def event_pipes(self) -> EventPipes | None:
        """The pipes of events and input: the last of a process that has them."""
        return EventPipes(self.readers[-1], self.writers[-1]) if len(self.writers) > 1 else None

    def close_writers(self) -> None:
        """Close the pipes to the process."""
        for writer in self.writers:
            writer.close()

    def close_reader(self, index: int) -> None:
        """Close one of the pipes from the process."""
        self._readers[index][1].close()

    def close_readers(self) -> None:
        """Close the pipes from the process, and discard unread data."""
        for _, transport in self._readers:
            transport.close()


async def attach_pipes(writing: list[int], reading: list[int]) -> ProcessPipes:
    """Open writers and readers on pipes. Closes all of them if canceled."""
    pipes = ProcessPipes([], [])
    to_write, to_read = [*writing], [*reading]
    try:
        while to_write:
            pipes.writers.append(await open_writer(to_write.pop(0)))
        while to_read:
            pipes._readers.append(await open_reader(to_read.pop(0)))
    except BaseException:
        pipes.close_writers()
        pipes.close_readers()
        for descriptor in (*to_write, *to_read):
            os.close(descriptor)
        raise
    return pipes


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
