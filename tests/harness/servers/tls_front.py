"""TLS before a server that has none, as a managed PostgreSQL or Valkey has it.

A client of PostgreSQL first asks in the clear whether there is TLS. Needs Python's library alone, to run in a pod too.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_HANDSHAKE = b"\x16"
_REQUEST = struct.Struct("!II")
_SSL_REQUEST, _GSS_REQUEST = _REQUEST.pack(8, 80877103), _REQUEST.pack(8, 80877104)
_CHUNK = 64 << 10


@asynccontextmanager
async def tls_front(
    listening: socket.socket, server: tuple[str, int], certificate: str, key: str
) -> AsyncIterator[None]:
    """Serve TLS on a listening socket, with what is said there passed on to a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listening.setblocking(False)
    accepting = asyncio.create_task(_accept(listening, server, context))
    try:
        yield
    finally:
        accepting.cancel()
        await asyncio.wait({accepting})


async def _accept(listening: socket.socket, server: tuple[str, int], context: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        while True:
            connection, _ = await loop.sock_accept(listening)
            group.create_task(_serve(connection, server, context))


async def _serve(connection: socket.socket, server: tuple[str, int], context: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    try:
        if await _agree(connection):
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=context)
            client = asyncio.StreamWriter(transport, protocol, reader, loop)
            try:
                from_server, to_server = await asyncio.open_connection(*server)
                await asyncio.gather(_pass_on(reader, to_server), _pass_on(from_server, client))
            finally:
                transport.abort()
    except OSError:
        pass  # the client did not trust the certificate, or one of both went away
    finally:
        connection.close()


async def _agree(connection: socket.socket) -> bool:
    """Answer a client of PostgreSQL; return False for one that goes on without TLS. Others begin with TLS itself."""
    loop = asyncio.get_running_loop()
    while await _peek(connection) not in (_HANDSHAKE, b""):
        request = b""
        while len(request) < _REQUEST.size and (more := await loop.sock_recv(connection, _REQUEST.size - len(request))):
            request += more
        if request not in (_SSL_REQUEST, _GSS_REQUEST):
            return False
        await loop.sock_sendall(connection, b"S" if request == _SSL_REQUEST else b"N")
    return True


async def _peek(connection: socket.socket) -> bytes:
    """Return the first byte, and leave it to be read."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


async def _main(port: str, server: str, server_port: str, certificate: str, key: str) -> None:
    with socket.create_server(("", int(port)), backlog=512) as listening:
        async with tls_front(listening, (server, int(server_port)), certificate, key):
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
