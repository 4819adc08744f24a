"""Forwards connections from the machine's loopback to the API server in the node's network namespace.

A socket belongs to the network namespace in which it was made. The machine's side makes it and the node inherits it, so
that the two namespaces need no device in common.
"""

from __future__ import annotations

import asyncio
import socket
import threading

_CHUNK_BYTES = 65536


def start_forwarder(listener: socket.socket, address: str, port: int) -> threading.Thread:
    """Forwards every connection of a listening socket to an address, in a thread that ends with the process."""
    forward = _Forwarder(address, port)
    thread = threading.Thread(target=lambda: asyncio.run(forward.serve(listener)), name="forwarder", daemon=True)
    thread.start()
    return thread


class _Forwarder:
    def __init__(self, address: str, port: int) -> None:
        self._address, self._port = address, port

    async def serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._connected, sock=listener)
        await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(self._address, self._port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, upstream_writer), _copy(upstream_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies until either side ends, then ends the other direction."""
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
