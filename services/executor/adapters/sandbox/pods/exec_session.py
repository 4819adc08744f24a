"""The standard streams of a program in a pod, over a WebSocket of the API server."""

from __future__ import annotations

from contextlib import suppress

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

PROTOCOL = Subprotocol("v4.channel.k8s.io")
_STDIN, _STDOUT, _ERROR = 0, 1, 3


class WebSocketSession:
    """Implements ExecSession. The first byte of a message is the number of its stream; standard error is dropped."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, content: bytes) -> None:
        """Write to its standard input. Raises ConnectionError."""
        try:
            await self._connection.send(bytes([_STDIN]) + content)
        except ConnectionClosed as error:
            raise ConnectionResetError from error

    async def receive(self) -> bytes:
        """Return the next bytes of its standard output; none at its end or that of the connection."""
        try:
            while True:
                message = await self._connection.recv(decode=False)
                if message[:1] == bytes([_STDOUT]) and len(message) > 1:
                    return bytes(message[1:])
                if message[:1] == bytes([_ERROR]):
                    # The program has ended; the message says how.
                    return b""
        except ConnectionClosed:
            return b""

    async def close(self) -> None:
        """Close the connection, which ends its standard input."""
        with suppress(OSError):
            await self._connection.close()
