"""What an answer is written to: its head waits for its body, so that both leave as one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

# More than this is worth a write of its own, and is not copied once more to be joined to what came before.
LARGE_BYTES = 64 * 1024


class GatheringTransport(asyncio.Transport):
    """Holds what is written until something follows it, or until the next turn of the event loop; everything else is
    the business of the transport below. The server writes head and body one after the other: each alone would be a TLS
    record, a call of the system and a wake-up of whoever reads it."""

    __slots__ = ("_below", "_due", "_held", "_loop")

    def __init__(self, below: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._below, self._loop = below, loop
        self._held = b""
        self._due = False

    def write(self, data: Any) -> None:
        """Write this together with what is held. If nothing is, hold it, but no longer than to the next turn."""
        if len(data) > LARGE_BYTES:
            self.flush()
            # The transport below pauses whoever writes more than it can pass on.
            self._below.write(data)
        elif self._held:
            held, self._held = self._held, b""
            self._below.write(held + data)
        elif data:
            # Whoever writes may use its buffer again at once.
            self._held = bytes(data)
            self._flush_soon()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Write these one after the other, as one."""
        self.write(b"".join(list_of_data))

    def flush(self) -> None:
        """Write what is held."""
        if self._held:
            held, self._held = self._held, b""
            self._below.write(held)

    def _flush_soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._turned)

    def _turned(self) -> None:
        self._due = False
        self.flush()

    def close(self) -> None:
        """Close the connection once everything is written."""
        self.flush()
        self._below.close()

    def abort(self) -> None:
        """Close the connection at once; what is held is lost."""
        self._held = b""
        self._below.abort()

    def write_eof(self) -> None:
        """Say that nothing more is written."""
        self.flush()
        self._below.write_eof()

    def can_write_eof(self) -> bool:
        """Say whether the end of writing can be told without closing the connection."""
        return self._below.can_write_eof()

    def is_closing(self) -> bool:
        """Say whether the connection is closed or about to be."""
        return self._below.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        return self._below.get_extra_info(name, default)

    def is_reading(self) -> bool:
        """Say whether what arrives is delivered."""
        return self._below.is_reading()

    def pause_reading(self) -> None:
        """Deliver nothing until told otherwise."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Deliver what arrives."""
        self._below.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another protocol have what arrives."""
        self._below.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return who has what arrives."""
        return self._below.get_protocol()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return len(self._held) + self._below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return at how many waiting bytes whoever writes is told to go on, and to pause."""
        return self._below.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set at how many waiting bytes whoever writes is told to pause, and to go on."""
        self._below.set_write_buffer_limits(high, low)
