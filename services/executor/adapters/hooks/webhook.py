"""Hooks that are asked over HTTP.

A request is a POST of the event as JSON. Its headers carry `toolmesh-timestamp` (seconds since the epoch) and, where there is a secret,
`toolmesh-signature`: `v1=` and the hex HMAC-SHA256 of the timestamp, a dot and the body. Receivers check it in constant time and refuse old
timestamps. An answer is 200 with JSON, or 204 for none.

A redirect is never followed, an answer is read up to its bound and no further, and nothing is asked twice: a hook may act on being asked.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump, parse
from libs.common.runtime.clock import Clock, SystemClock
from libs.common.telemetry.log import Log
from services.executor.domain.hooks.answers import HookFailedError

if TYPE_CHECKING:
    import httpx

SIGNATURE, TIMESTAMP = "toolmesh-signature", "toolmesh-timestamp"
_ANSWERED, _NO_CONTENT = 200, 204
# Idle connections are kept for as long as most servers do.
_KEEP_SECONDS = 4.0
_CONNECTIONS = 16
# The caller's bound is tighter; this one is for whoever forgets it.
_AT_MOST = 60.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a hook is asked, and how it knows who asks."""

    url: str
    secret: bytes = field(default=b"", repr=False)
    trust: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    """Whose certificates are believed; None for those that this machine believes."""


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return what shows a receiver that a request comes from somebody who knows the secret."""
    return "v1=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Webhook:
    """A server that answers for a hook. Connections are reused; the first is made when it is first asked."""

    def __init__(self, name: str, endpoint: Endpoint, *, max_bytes: int, clock: Clock | None = None) -> None:
        self._name, self._endpoint, self._max_bytes = name, endpoint, max_bytes
        self._clock = clock or SystemClock()
        self._client: httpx.AsyncClient | None = None
        self._log: Log | None = None

    def attach(self, log: Log) -> None:
        """Have it say what goes wrong."""
        self._log = log

    async def ask(self, event: dict[str, Any]) -> Any:
        """Return what the server answers, or None. The caller bounds the time."""
        body = dump(event)
        try:
            async with self._open().stream(
                "POST", self._endpoint.url, content=body, headers=self._headers(body)
            ) as response:
                return await self._read(response)
        except HookFailedError:
            raise
        except Exception as error:
            # More than the client declares: even where a redirect leads, which nobody follows, is read and may be nonsense.
            self._complain("unreachable", type(error).__name__)
            raise HookFailedError("unreachable") from error

    async def close(self) -> None:
        """Close what is open."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            # A megabyte and more that nobody needs who has no webhook.
            import httpx

            self._client = httpx.AsyncClient(
                verify=self._endpoint.trust or ssl.create_default_context(),
                # Neither proxies nor credentials of the environment: it is asked where the deployment says, and nowhere else.
                trust_env=False,
                follow_redirects=False,
                timeout=_AT_MOST,
                limits=httpx.Limits(
                    max_connections=_CONNECTIONS,
                    max_keepalive_connections=_CONNECTIONS,
                    keepalive_expiry=_KEEP_SECONDS,
                ),
            )
        return self._client

    def _headers(self, body: bytes) -> dict[str, str]:
        timestamp = str(int(self._clock.now().timestamp()))
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            # What is compressed can be far larger than it looks.
            "accept-encoding": "identity",
            "user-agent": "toolmesh",
            TIMESTAMP: timestamp,
        }
        if self._endpoint.secret:
            headers[SIGNATURE] = signature(self._endpoint.secret, timestamp, body)
        return headers

    async def _read(self, response: httpx.Response) -> Any:
        if response.status_code == _NO_CONTENT:
            return None
        if response.status_code != _ANSWERED:
            raise self._refused("redirected" if response.is_redirect else "status", str(response.status_code))
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json" or response.headers.get("content-encoding", "identity") != "identity":
            raise self._refused("content_type", media_type[:80])
        body = await self._bounded(response.aiter_raw())
        try:
            return parse(body, max_bytes=self._max_bytes)
        except MeshError as error:
            raise self._refused("not_json", error.reason.name) from error

    async def _bounded(self, pieces: AsyncIterator[bytes]) -> bytes:
        body = bytearray()
        async for piece in pieces:
            body += piece
            if len(body) > self._max_bytes:
                raise self._refused("too_large", str(self._max_bytes))
        return bytes(body)

    def _refused(self, kind: str, detail: str) -> HookFailedError:
        self._complain(kind, detail)
        return HookFailedError(kind)

    def _complain(self, kind: str, detail: str) -> None:
        if self._log is not None:
            self._log.warning("a hook gave no answer", hook=self._name, kind=kind, detail=detail)
