"""A transport that joins small writes, so that the head and the body of a response leave as one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

# Larger data is written by itself: joining it would copy it once more.
LARGE_BYTES = 64 * 1024


class CoalescingTransport(asyncio.Transport):
    """Buffers a write until the next write or the next iteration of the event loop. Delegates everything else.

    The server writes head and body separately: each would be a TLS record, a system call and a wake-up of the reader.
    """

    __slots__ = ("_below", "_buffer", "_due", "_loop")

    def __init__(self, below: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._below, self._loop = below, loop
        self._buffer = b""
        self._due = False

    def write(self, data: Any) -> None:
        """Write the data together with the buffer; with an empty buffer, buffer it until the next iteration."""
        if len(data) > LARGE_BYTES:
            self.flush()
            # The transport below applies back pressure.
            self._below.write(data)
        elif self._buffer:
            buffered, self._buffer = self._buffer, b""
            self._below.write(buffered + data)
        elif data:
            # A copy, because the writer may reuse its buffer at once.
            self._buffer = bytes(data)
            self._flush_soon()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Write all of these as one."""
        self.write(b"".join(list_of_data))

    def flush(self) -> None:
        """Write the buffer."""
        if self._buffer:
            buffered, self._buffer = self._buffer, b""
            self._below.write(buffered)

    def _flush_soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._due = False
        self.flush()

    def close(self) -> None:
        """Close the connection after writing the buffer."""
        self.flush()
        self._below.close()

    def abort(self) -> None:
        """Close the connection at once and drop the buffer."""
        self._buffer = b""
        self._below.abort()

    def write_eof(self) -> None:
        """Close the writing side after writing the buffer."""
        self.flush()
        self._below.write_eof()

    def can_write_eof(self) -> bool:
        """Return whether the writing side can be closed by itself."""
        return self._below.can_write_eof()

    def is_closing(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self._below.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information about the connection."""
        return self._below.get_extra_info(name, default)

    def is_reading(self) -> bool:
        """Return whether received data is delivered."""
        return self._below.is_reading()

    def pause_reading(self) -> None:
        """Stop delivering received data."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Deliver received data again."""
        self._below.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol."""
        self._below.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        return self._below.get_protocol()

    def get_write_buffer_size(self) -> int:
        """Return the number of buffered bytes."""
        return len(self._buffer) + self._below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and high water marks."""
        return self._below.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the high and low water marks."""
        self._below.set_write_buffer_limits(high, low)
