"""Subscriptions of the fixtures to their resources."""

from __future__ import annotations

import queue
from collections.abc import Generator
from typing import Any

from tests.conformance.upstream.request import Request
from tests.conformance.upstream.resources import RESOURCES

_PING_SECONDS = 0.5
_KNOWN = {each["uri"] for each in RESOURCES}


class Watches:
    """The open subscriptions."""

    def __init__(self) -> None:
        self._open: list[tuple[set[str], queue.Queue[str]]] = []

    def update(self, uri: str) -> int:
        """Report a change of a resource; return to how many subscriptions."""
        reached = [changes for uris, changes in list(self._open) if uri in uris]
        for changes in reached:
            changes.put(uri)
        return len(reached)

    def end_all(self) -> None:
        """End the subscriptions."""
        for _, changes in list(self._open):
            changes.put("")

    def listen(self, request: Request) -> Generator[dict[str, Any], None, Any]:
        """Return notifications, then the result. What the server does not have is not watched."""
        asked = request.params["notifications"].get("resourceSubscriptions") or []
        watch = {uri for uri in asked if uri in _KNOWN}, queue.Queue[str]()
        self._open.append(watch)
        try:
            agreed = {"resourceSubscriptions": sorted(watch[0])}
            yield _notification(request, "notifications/subscriptions/acknowledged", notifications=agreed)
            while True:
                try:
                    uri = watch[1].get(timeout=_PING_SECONDS)
                except queue.Empty:
                    # Only a write shows that the client is gone.
                    yield _notification(request, "notifications/message", level="debug", data="still here")
                    continue
                if not uri:
                    return {}
                yield _notification(request, "notifications/resources/updated", uri=uri)
        finally:
            self._open.remove(watch)


def _notification(request: Request, method: str, **params: Any) -> dict[str, Any]:
    meta = {"io.modelcontextprotocol/subscriptionId": request.id}
    return {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": meta}}
