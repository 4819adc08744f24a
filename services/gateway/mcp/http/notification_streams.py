"""Streams of server-sent events that say when the tools of a view change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from libs.common.tool_names import ToolName
from services.gateway.mcp.context import Caller, Result
from services.gateway.mcp.messages import RequestId
from services.gateway.mcp.ports import ToolFacts
from services.gateway.mcp.protocol import SERVER_META, SUBSCRIPTION_META_KEY
from services.gateway.mcp.views import View
from services.gateway.transport.asgi_types import Header, Send

MAX_STREAMS, MAX_STREAMS_OF_ONE = 128, 16
# Shorter than the idle timeouts of proxies, which would close a silent stream.
_PING_SECONDS = 15.0
# Changes within this time are one notification.
_QUIET_SECONDS = 0.5
_LIST_CHANGED = "notifications/tools/list_changed"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

IsAlive = Callable[[], Awaitable[bool]]


class StreamFrames(NamedTuple):
    """What a stream sends: at its beginning, when tools changed, and at its end. Empty: nothing."""

    first: bytes
    changed: bytes
    last: bytes


class NotificationStreams:
    """Opens streams, a limited number for each caller and for the process, and ends them all when it drains."""

    def __init__(self, facts: ToolFacts) -> None:
        self._facts = facts
        self._open: dict[str, set[NotificationStream]] = {}
        self._draining = False

    def open(self, caller: Caller, view: View, frames: StreamFrames, alive: IsAlive) -> NotificationStream:
        """Return a stream.

        Raises RATE_LIMITED for a caller with too many, OVERLOADED while the process has too many or drains.
        """
        if len(self._open.get(caller.owner, ())) >= MAX_STREAMS_OF_ONE:
            raise MeshError(Reason.RATE_LIMITED, message="too many streams are open", retry_after=10)
        if self._draining or sum(map(len, self._open.values())) >= MAX_STREAMS:
            raise MeshError(Reason.OVERLOADED, retry_after=10)
        stream = NotificationStream(caller, view, frames, alive, self._close)
        self._open.setdefault(caller.owner, set()).add(stream)
        stream.unsubscribe = self._facts.subscribe(stream.on_change)
        return stream

    def end_all(self) -> None:
        """End every stream, and open no other: the clients connect to another replica."""
        self._draining = True
        for stream in [stream for own in self._open.values() for stream in own]:
            stream.end()

    def _close(self, stream: NotificationStream) -> None:
        own = self._open.get(stream.caller.owner, set())
        own.discard(stream)
        if not own:
            self._open.pop(stream.caller.owner, None)


class NotificationStream:
    """One stream. It ends with the caller's token, its session or the process."""

    def __init__(
        self,
        caller: Caller,
        view: View,
        frames: StreamFrames,
        alive: IsAlive,
        closed: Callable[[NotificationStream], None],
    ) -> None:
        self.caller, self._view = caller, view
        self._frames, self._alive, self._closed = frames, alive, closed
        self._wake = asyncio.Event()
        self._changed = self._ended = False
        self.unsubscribe: Callable[[], None] = lambda: None

    def on_change(self, tool: ToolName) -> None:
        """Notice that a tool changed. Tags are not looked at: a tool may have lost one."""
        if self._view.name_of(tool):
            self._changed = True
            self._wake.set()

    def end(self) -> None:
        """End the stream as soon as it has sent what it has."""
        self._ended = True
        self._wake.set()

    def close(self) -> None:
        """Release the stream's place."""
        self.unsubscribe()
        self._closed(self)

    async def serve(self, send: Send, headers: list[Header]) -> None:
        """Send events until the stream ends."""
        start = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform"), *headers]
        await send({"type": "http.response.start", "status": 200, "headers": start})
        await _send(send, self._frames.first or b": open\n\n")
        while not self._ended and await self._wait():
            if self._changed:
                self._changed = False
                await _send(send, self._frames.changed)
                await asyncio.sleep(_QUIET_SECONDS)
            elif not self._ended:
                if not await self._alive():
                    break
                await _send(send, b": ping\n\n")
        await send({"type": "http.response.body", "body": self._frames.last})

    async def _wait(self) -> bool:
        """Wait for a change, the next ping or the end; return whether the token still holds."""
        left = self.caller.expires_at - time.time()
        if left <= 0:
            return False
        try:
            async with asyncio.timeout(min(_PING_SECONDS, left)):
                await self._wake.wait()
        except TimeoutError:
            return self.caller.expires_at > time.time()
        self._wake.clear()
        return True


def event_of(message: dict[str, Any]) -> bytes:
    """Return a message as a server-sent event."""
    return b"event: message\ndata: " + dump(message) + b"\n\n"


def session_frames() -> StreamFrames:
    """Return what the stream of a session sends."""
    return StreamFrames(b"", event_of({"jsonrpc": "2.0", "method": _LIST_CHANGED}), b"")


def subscription_frames(request_id: RequestId, params: dict[str, Any]) -> StreamFrames:
    """Return what the stream of `subscriptions/listen` sends: the acknowledgement, the event and the final response.

    Only changes of tools are honoured; without a wish for them there is no event.
    """
    meta = {SUBSCRIPTION_META_KEY: request_id}
    wanted = params["notifications"].get("toolsListChanged") is True
    honoured = {"toolsListChanged": True} if wanted else {}
    acknowledged = {"method": _ACKNOWLEDGED, "params": {"notifications": honoured, "_meta": meta}}
    changed = event_of({"jsonrpc": "2.0", "method": _LIST_CHANGED, "params": {"_meta": meta}}) if wanted else b""
    result: Result = {"resultType": "complete", "_meta": SERVER_META | meta}
    last = event_of({"jsonrpc": "2.0", "id": request_id, "result": result})
    return StreamFrames(event_of({"jsonrpc": "2.0", **acknowledged}), changed, last)


async def always_alive() -> bool:
    """Answer for a stream without a session."""
    return True


async def _send(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})
