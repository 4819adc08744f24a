"""TLS before a server that has none, as a managed PostgreSQL or Valkey has it.

A client of PostgreSQL first asks in the clear whether there is TLS. Needs Python's library alone, to run in a pod too.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import sys
from dataclasses import dataclass

_REQUEST = struct.Struct("!II")
_SSL_REQUEST, _GSS_REQUEST = _REQUEST.pack(8, 80877103), _REQUEST.pack(8, 80877104)
_CHUNK = 64 << 10


@dataclass(frozen=True)
class TlsFront:
    """Passes on what clients say over TLS."""

    host: str
    port: int
    context: ssl.SSLContext
    asks_first: bool
    """Whether clients ask for TLS, as those of PostgreSQL do."""

    async def serve(self, port: int) -> None:
        """Serve until it is canceled."""
        encrypted = None if self.asks_first else self.context
        server = await asyncio.start_server(self._pass, "", port, ssl=encrypted, backlog=512)
        await server.serve_forever()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.asks_first:
                await self._answer(reader, writer)
            from_server, to_server = await asyncio.open_connection(self.host, self.port)
            await asyncio.gather(_pass_on(reader, to_server), _pass_on(from_server, writer))
        except (OSError, EOFError):
            pass  # it wants no TLS, does not trust the certificate, or one of both went away
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await reader.readexactly(_REQUEST.size)) == _GSS_REQUEST:
            writer.write(b"N")
        if request != _SSL_REQUEST:
            raise ConnectionError
        writer.write(b"S")
        await writer.start_tls(self.context)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def main(port: str, host: str, server_port: str, certificate: str, key: str, *options: str) -> None:
    """Serve at a port; the option `--postgres` for a server of PostgreSQL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    front = TlsFront(host, int(server_port), context, asks_first="--postgres" in options)
    asyncio.run(front.serve(int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
