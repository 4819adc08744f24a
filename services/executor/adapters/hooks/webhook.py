"""Hooks that are called over HTTP.

A request is a POST of the event as JSON. Its headers carry `toolmesh-timestamp` (seconds since the epoch) and, if a
secret is configured, `toolmesh-signature`: `v1=` and the hex HMAC-SHA256 of the timestamp, a dot and the body.
Receivers compare it in constant time and refuse old timestamps. A response is 200 with JSON, or 204 for no answer.

Redirects are not followed, responses are read up to a limit, and requests are not retried, because a hook may have
effects.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump, parse
from libs.common.runtime.clock import Clock, SystemClock
from libs.common.telemetry.log import Log
from services.executor.domain.hooks.answers import HookFailedError
from services.executor.domain.scheduling.heavy_work import WorkShare

if TYPE_CHECKING:
    import httpx

SIGNATURE, TIMESTAMP = "toolmesh-signature", "toolmesh-timestamp"
_OK, _NO_CONTENT = 200, 204
# As long as most servers keep idle connections open.
_KEEPALIVE_SECONDS = 4.0
_CONNECTIONS = 16
# A safety net; the caller sets a shorter timeout.
_MAX_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL of a hook, the secret that signs requests, and the trusted certificates."""

    url: str
    secret: bytes = field(default=b"", repr=False)
    trust: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    """The TLS context; None for the machine's trusted certificates."""


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return the signature of a request."""
    return "v1=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Webhook:
    """Calls a hook over HTTP. Connections are reused; the first one is opened on first use."""

    def __init__(self, name: str, endpoint: Endpoint, *, max_bytes: int, clock: Clock | None = None) -> None:
        self._name, self._endpoint, self._max_bytes = name, endpoint, max_bytes
        self._clock = clock or SystemClock()
        self._client: httpx.AsyncClient | None = None
        self._log: Log | None = None

    def attach(self, log: Log) -> None:
        """Set the log for failures."""
        self._log = log

    async def ask(self, event: dict[str, Any], share: WorkShare) -> Any:
        """Return the server's answer, or None. The caller sets the timeout."""
        body, headers = await share.run_unless_light(event, partial(self._request, event))
        try:
            async with self._connect().stream("POST", self._endpoint.url, content=body, headers=headers) as response:
                return await self._read(response)
        except HookFailedError:
            raise
        except Exception as error:
            # The client raises more than it documents, for example for an invalid redirect target.
            self._warn("unreachable", type(error).__name__)
            raise HookFailedError("unreachable") from error

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _connect(self) -> httpx.AsyncClient:
        if self._client is None:
            # Imported lazily: it takes over a megabyte.
            import httpx

            self._client = httpx.AsyncClient(
                verify=self._endpoint.trust or ssl.create_default_context(),
                # No proxies or credentials of the environment: only the configured URL is called.
                trust_env=False,
                follow_redirects=False,
                timeout=_MAX_SECONDS,
                limits=httpx.Limits(
                    max_connections=_CONNECTIONS,
                    max_keepalive_connections=_CONNECTIONS,
                    keepalive_expiry=_KEEPALIVE_SECONDS,
                ),
            )
        return self._client

    def _request(self, event: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
        body = dump(event)
        return body, self._headers(body)

    def _headers(self, body: bytes) -> dict[str, str]:
        timestamp = str(int(self._clock.now().timestamp()))
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            # Compressed responses could expand beyond the limit.
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
        if response.status_code != _OK:
            raise self._response_error("redirected" if response.is_redirect else "status", str(response.status_code))
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json" or response.headers.get("content-encoding", "identity") != "identity":
            raise self._response_error("content_type", media_type[:80])
        body = await self._read_bounded(response.aiter_raw())
        try:
            return parse(body, max_bytes=self._max_bytes)
        except MeshError as error:
            raise self._response_error("not_json", error.reason.name) from error

    async def _read_bounded(self, chunks: AsyncIterator[bytes]) -> bytes:
        body = bytearray()
        async for chunk in chunks:
            body += chunk
            if len(body) > self._max_bytes:
                raise self._response_error("too_large", str(self._max_bytes))
        return bytes(body)

    def _response_error(self, kind: str, detail: str) -> HookFailedError:
        self._warn(kind, detail)
        return HookFailedError(kind)

    def _warn(self, kind: str, detail: str) -> None:
        if self._log is not None:
            self._log.warning("hook gave no valid answer", hook=self._name, kind=kind, detail=detail)
