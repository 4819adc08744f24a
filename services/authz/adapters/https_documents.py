"""Documents from elsewhere, over HTTPS: bounded in size and time, without redirects, off the event loop."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

MAX_BYTES = 256 * 1024
TIMEOUT = 3.0
_CHUNK = 16 * 1024


class DocumentMissingError(Exception):
    """Whoever answers for the document says that there is none."""


class DocumentUnavailableError(Exception):
    """Nobody answered, or not with a document of an acceptable size in time."""


class HttpsDocuments:
    """Fetches documents. A redirect is not followed: the address that was configured is the one that is trusted."""

    def __init__(self, ca: Path | None = None, *, timeout: float = TIMEOUT, max_bytes: int = MAX_BYTES) -> None:
        """Read the certificates of whom to trust; None means the machine's own. Raises OSError for a file that is none."""
        self._context = ssl.create_default_context(cafile=str(ca) if ca else None)
        self._timeout, self._max_bytes = timeout, max_bytes

    async def fetch(self, url: str) -> bytes:
        """Return the document. Raises DocumentMissingError or DocumentUnavailableError."""
        return await asyncio.to_thread(self._fetch, url)

    def _fetch(self, url: str) -> bytes:
        parts = urlsplit(url)
        deadline = time.monotonic() + self._timeout
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port or 443, timeout=self._timeout, context=self._context
        )
        try:
            connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""), headers=_HEADERS)
            response = connection.getresponse()
            if response.status in (404, 410):
                raise DocumentMissingError(url)
            if response.status != 200:
                raise DocumentUnavailableError(f"answered with status {response.status}")
            return self._read(response.read1, deadline)
        except (OSError, http.client.HTTPException) as error:
            raise DocumentUnavailableError(type(error).__name__) from error
        finally:
            connection.close()

    def _read(self, read: Callable[[int], bytes], deadline: float) -> bytes:
        """Read all of it; a sender that trickles is given up on, however lively each single read is."""
        document = b""
        while chunk := read(_CHUNK):
            document += chunk
            if len(document) > self._max_bytes:
                raise DocumentUnavailableError("is too large")
            if time.monotonic() > deadline:
                raise DocumentUnavailableError("takes too long")
        return document


_HEADERS = {"accept": "application/json", "user-agent": "toolmesh-authz"}


def https_url(text: str) -> str:
    """Return the address if it is one that may be fetched, or raise ValueError."""
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.fragment:
        raise ValueError("is not an https:// address without user and fragment")
    return text
