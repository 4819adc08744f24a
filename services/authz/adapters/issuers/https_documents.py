"""Documents from elsewhere, over HTTPS: bounded in size and time, without redirects, off the event loop."""

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
# How many documents of one place are fetched at a time.
AT_ONCE = 4
_CHUNK = 16 * 1024
_MOMENT = 0.02


class DocumentMissingError(Exception):
    """Whoever answers for the document says that there is none."""


class DocumentUnavailableError(Exception):
    """Nobody answered, or not with a document of an acceptable size in time."""


class HttpsDocuments:
    """Fetches documents. A redirect is not followed: the address that was configured is the one that is trusted.

    In threads of its own, and few: those of the process sign tokens and look at keys, and must not wait for strangers.
    """

    def __init__(self, ca: Path | None = None, *, timeout: float = TIMEOUT, max_bytes: int = MAX_BYTES) -> None:
        """Read the certificates of whom to trust; None means the machine's own. Raises OSError for a file that is none."""
        self._context = ssl.create_default_context(cafile=str(ca) if ca else None)
        self._timeout, self._max_bytes = timeout, max_bytes
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="documents")

    async def fetch(self, url: str) -> bytes:
        """Return the document. Raises DocumentMissingError or DocumentUnavailableError, the latter also when its turn comes too late."""
        parts, loop = urlsplit(url), asyncio.get_running_loop()
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port or 443, timeout=self._timeout, context=self._context
        )
        deadline = time.monotonic() + self._timeout
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        fetching = loop.run_in_executor(self._threads, self._fetch, connection, path, deadline)
        # Each single read has its time, and a sender that trickles keeps to it for ever: so there is one time for all of it. A moment
        # behind the deadline, by which the thread tells an end like this from the end of a document.
        over = loop.call_later(self._timeout + _MOMENT, _hang_up, connection)
        fetching.add_done_callback(lambda done: over.cancel())
        # Whoever leaves before leaves the thread behind, and must not take away what ends it.
        return await asyncio.shield(fetching)

    def _fetch(self, connection: http.client.HTTPSConnection, path: str, deadline: float) -> bytes:
        try:
            if time.monotonic() > deadline:
                raise DocumentUnavailableError("waits too long for its turn")
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
        """Connect as the connection itself would, but so that it can be hung up while the other side takes its time to greet."""
        connection.sock = socket.create_connection((connection.host, connection.port), self._timeout)
        connection.sock = self._context.wrap_socket(
            connection.sock, server_hostname=connection.host, do_handshake_on_connect=False
        )
        connection.sock.do_handshake()

    def _read(self, read: Callable[[int], bytes], deadline: float) -> bytes:
        """Read all of it; a sender that trickles is given up on, however lively each single read is."""
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


def _hang_up(connection: http.client.HTTPSConnection) -> None:
    """End whatever the thread waits for on this connection; it finds that nothing more comes."""
    if connection.sock is not None:
        with suppress(OSError):
            # Not the method of the encrypted socket, which takes the encryption away under the thread that reads.
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


_HEADERS = {"accept": "application/json", "user-agent": "toolmesh-authz"}


def https_url(text: str) -> str:
    """Return the address if it is one that may be fetched, or raise ValueError."""
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.fragment:
        raise ValueError("is not an https:// address without user and fragment")
    return text
