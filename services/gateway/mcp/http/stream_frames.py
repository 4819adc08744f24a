"""What a stream of notifications sends, in each revision."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from libs.common.json.jsonio import dump
from services.gateway.mcp.context import Result
from services.gateway.mcp.messages import RequestId
from services.gateway.mcp.protocol import SERVER_META, SUBSCRIPTION_META_KEY
from services.gateway.mcp.tools.content import RESULT_URI

_LIST_CHANGED, _UPDATED = "notifications/tools/list_changed", "notifications/resources/updated"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class StreamFrames(Protocol):
    """The events of a stream; empty for one that its client did not ask for."""

    def first(self, watched: Collection[str]) -> bytes:
        """Return how the stream begins, once these resources are watched."""
        ...

    def list_changed(self) -> bytes:
        """Return the event of changed tools."""
        ...

    def updated(self, uri: str) -> bytes:
        """Return the event of a changed resource."""
        ...

    def last(self) -> bytes:
        """Return how the stream ends."""
        ...


class SessionFrames:
    """The stream of a session."""

    def first(self, watched: Collection[str]) -> bytes:
        """Implement `StreamFrames.first`."""
        return b": open\n\n"

    def list_changed(self) -> bytes:
        """Implement `StreamFrames.list_changed`."""
        return event_of({"method": _LIST_CHANGED})

    def updated(self, uri: str) -> bytes:
        """Implement `StreamFrames.updated`."""
        return event_of({"method": _UPDATED, "params": {"uri": uri}})

    def last(self) -> bytes:
        """Implement `StreamFrames.last`."""
        return b""


class SubscriptionFrames:
    """The stream of `subscriptions/listen`: the acknowledgement, the events and the final response."""

    def __init__(self, request_id: RequestId, params: dict[str, Any]) -> None:
        notifications = params["notifications"]
        self._request_id, self._meta = request_id, {SUBSCRIPTION_META_KEY: request_id}
        self._tools = notifications.get("toolsListChanged") is True
        asked = list(dict.fromkeys(notifications.get("resourceSubscriptions") or ()))
        # A stored result never changes.
        self._stored = [uri for uri in asked if uri.startswith(RESULT_URI)]
        self.resources = [uri for uri in asked if not uri.startswith(RESULT_URI)]
        """The resources of a server that the client asked for."""

    def first(self, watched: Collection[str]) -> bytes:
        """Implement `StreamFrames.first`: say which of its wishes are granted."""
        granted: dict[str, Any] = {"toolsListChanged": True} if self._tools else {}
        resources = [*(uri for uri in self.resources if uri in watched), *self._stored]
        if resources:
            granted["resourceSubscriptions"] = resources
        return event_of({"method": _ACKNOWLEDGED, "params": {"notifications": granted, "_meta": self._meta}})

    def list_changed(self) -> bytes:
        """Implement `StreamFrames.list_changed`."""
        return event_of({"method": _LIST_CHANGED, "params": {"_meta": self._meta}}) if self._tools else b""

    def updated(self, uri: str) -> bytes:
        """Implement `StreamFrames.updated`."""
        return event_of({"method": _UPDATED, "params": {"uri": uri, "_meta": self._meta}})

    def last(self) -> bytes:
        """Implement `StreamFrames.last`."""
        result: Result = {"resultType": "complete", "_meta": SERVER_META | self._meta}
        return event_of({"id": self._request_id, "result": result})


def event_of(message: dict[str, Any]) -> bytes:
    """Return a message as a server-sent event."""
    return b"event: message\ndata: " + dump({"jsonrpc": "2.0", **message}) + b"\n\n"
