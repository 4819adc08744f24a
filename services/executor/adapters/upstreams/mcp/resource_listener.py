"""Listens to an MCP server for changes of resources, as the client that the server sees."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from services.executor.adapters.upstreams.mcp.transport import Requests, RpcError

MAX_PENDING = 64
_MAX_URI = 2048
_METHOD_NOT_FOUND, _INVALID_PARAMS = -32601, -32602
_UPDATED, _ACKNOWLEDGED = "notifications/resources/updated", "notifications/subscriptions/acknowledged"


class ResourceListener:
    """Implements CallClient. Changes of one resource that were not read yet are one."""

    def __init__(self, uris: Sequence[str]) -> None:
        self._uris = tuple(uris)
        self._pending: dict[str, None] = {}
        self.ready, self.changed = asyncio.Event(), asyncio.Event()
        self.refusal: RpcError | None = None
        """Why the server does not watch all of the resources."""

    @property
    def capabilities(self) -> dict[str, Any]:
        """Implement `CallClient.capabilities`: a listener cannot be asked for anything."""
        return {}

    def progress(self, params: Mapping[str, Any]) -> None:
        """Implement `CallClient.progress`."""

    def log(self, params: Mapping[str, Any]) -> None:
        """Implement `CallClient.log`."""

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        """Implement `CallClient.notified`. What was not asked for is ignored."""
        if method == _ACKNOWLEDGED:
            self._acknowledge(params.get("notifications"))
        elif method == _UPDATED and self._is_watched(params.get("uri")):
            self._add(params["uri"])

    async def answer(self, requests: Requests) -> dict[str, Any]:
        """Implement `CallClient.answer`."""
        raise RpcError(_METHOD_NOT_FOUND, "a listener cannot be asked")

    def take(self) -> list[str]:
        """Return the resources that changed since the last time."""
        taken, self._pending = list(self._pending), {}
        self.changed.clear()
        return taken

    def _acknowledge(self, agreed: Any) -> None:
        watched = agreed.get("resourceSubscriptions") if isinstance(agreed, dict) else None
        if not isinstance(watched, list) or not set(self._uris) <= {each for each in watched if isinstance(each, str)}:
            self.refusal = RpcError(_INVALID_PARAMS, "the server does not report changes of this resource")
        self.ready.set()

    def _is_watched(self, uri: Any) -> bool:
        return isinstance(uri, str) and len(uri) <= _MAX_URI and uri.startswith(self._uris)

    def _add(self, uri: str) -> None:
        self._pending[uri] = None
        if len(self._pending) > MAX_PENDING:
            # Too many below the watched ones: those themselves say it all.
            self._pending = dict.fromkeys(self._uris)
        self.changed.set()


async def wait_for_event(event: asyncio.Event, work: asyncio.Future[None], seconds: float | None) -> None:
    """Wait for an event, or so long at most. Raises what the work raises if that ends first."""
    waiting = asyncio.ensure_future(event.wait())
    ends: set[asyncio.Future[Any]] = {waiting, work}
    try:
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if work.done():
        work.result()
