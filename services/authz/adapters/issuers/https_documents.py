"""Fetches documents over HTTPS in threads: bounded in size and time, without redirects."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

MAX_BYTES = 256 * 1024
TIMEOUT = 3.0
# Concurrent fetches of one HttpsDocuments.
MAX_CONCURRENT = 4
_CHUNK = 16 * 1024
_ABORT_DELAY = 0.02


class DocumentMissingError(Exception):
    """The server answered that there is no such document."""


class DocumentUnavailableError(Exception):
    """The server did not answer with a document of acceptable size in time."""


class HttpsDocuments:
    """Fetches documents. Redirects are not followed: only the configured address is trusted.

    Uses its own few threads: the default executor signs tokens and reads keys and must not wait for slow servers.
    """

    def __init__(self, ca: Path | None = None, *, timeout: float = TIMEOUT, max_bytes: int = MAX_BYTES) -> None:
        """Load the trusted certificates; None means those of the system. Raises OSError for an invalid file."""
        self._context = ssl.create_default_context(cafile=str(ca) if ca else None)
        self._timeout, self._max_bytes = timeout, max_bytes
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT, thread_name_prefix="documents")

    async def fetch(self, url: str) -> bytes:
        """Return the document. Raises DocumentMissingError, or DocumentUnavailableError, also after a long wait for a
        thread."""
        parts, loop = urlsplit(url), asyncio.get_running_loop()
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port or 443, timeout=self._timeout, context=self._context
        )
        deadline = time.monotonic() + self._timeout
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        fetching = loop.run_in_executor(self._threads, self._fetch, connection, path, deadline)
        # The socket timeout applies to each read, so a slow sender could stay below it forever. The connection is
        # therefore shut down after the deadline; the delay lets the thread distinguish that from the end of the
        # document.
        abort = loop.call_later(self._timeout + _ABORT_DELAY, _shut_down, connection)
        fetching.add_done_callback(lambda done: abort.cancel())
        # A canceled caller must not cancel the timer that ends the thread.
        return await asyncio.shield(fetching)

    def _fetch(self, connection: http.client.HTTPSConnection, path: str, deadline: float) -> bytes:
        try:
            if time.monotonic() > deadline:
                raise DocumentUnavailableError("waited too long for a thread")
            self._connect(connection)
            connection.request("GET", path, headers=_HEADERS)
            response = connection.getresponse()
            if response.status in (404, 410):
                raise DocumentMissingError(path)
            if response.status != 200:
                raise DocumentUnavailableError(f"answered with status {response.status}")
            return self._read(response.read1, deadline)
        except (OSError, http.client.HTTPException) as error:
            raise DocumentUnavailableError(type(error).__name__) from error
        finally:
            connection.close()

    def _connect(self, connection: http.client.HTTPSConnection) -> None:
        """Connect like HTTPSConnection.connect, but set `sock` before the handshake so that it can be shut down."""
        connection.sock = socket.create_connection((connection.host, connection.port), self._timeout)
        connection.sock = self._context.wrap_socket(
            connection.sock, server_hostname=connection.host, do_handshake_on_connect=False
        )
        connection.sock.do_handshake()

    def _read(self, read: Callable[[int], bytes], deadline: float) -> bytes:
        """Read the whole body, within the deadline."""
        document = b""
        while chunk := read(_CHUNK):
            document += chunk
            if len(document) > self._max_bytes:
                raise DocumentUnavailableError("is too large")
            if time.monotonic() > deadline:
                break
        if time.monotonic() > deadline:
            raise DocumentUnavailableError("takes too long")
        return document


def _shut_down(connection: http.client.HTTPSConnection) -> None:
    """Shut the connection down; the waiting thread then reads the end of the stream."""
    if connection.sock is not None:
        with suppress(OSError):
            # Not SSLSocket.shutdown, which removes the TLS state while the thread reads.
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


_HEADERS = {"accept": "application/json", "user-agent": "toolmesh-authz"}


def https_url(text: str) -> str:
    """Return a valid https:// address. Raises ValueError."""
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.fragment:
        raise ValueError("is not an https:// address without user and fragment")
    return text
