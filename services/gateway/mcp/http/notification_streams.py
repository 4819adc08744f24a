"""Streams of server-sent events that say when the tools of a view change, and the resources of the server behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import ToolName
from services.gateway.mcp.context import Caller
from services.gateway.mcp.http.stream_frames import SessionFrames, StreamFrames, SubscriptionFrames
from services.gateway.mcp.ports import ToolFacts
from services.gateway.mcp.session_changes import SessionChanges
from services.gateway.mcp.upstreams.resource_follower import ResourceFollower
from services.gateway.mcp.upstreams.subscribe import ResourceFollowers
from services.gateway.mcp.views import View
from services.gateway.transport.asgi_types import Header, Send

MAX_STREAMS, MAX_STREAMS_OF_ONE = 128, 16
# Resources below a watched one may be many; beyond this number the watched ones are reported instead.
_MAX_UPDATED = 64
# Shorter than the idle timeouts of proxies, which would close a silent stream.
_PING_SECONDS = 15.0
# Changes within this time are one notification.
_QUIET_SECONDS = 0.5

IsAlive = Callable[[], Awaitable[bool]]


class NotificationStreams:
    """Opens streams, a limited number for each caller and for the process, and ends them all when it drains."""

    def __init__(self, facts: ToolFacts, followers: ResourceFollowers, changes: SessionChanges) -> None:
        self._facts, self._followers, self._changes = facts, followers, changes
        self._open: dict[str, set[NotificationStream]] = {}
        self._draining = False

    def open_session(self, caller: Caller, view: View, session: str, alive: IsAlive) -> NotificationStream:
        """Return the stream of a session, which also reports the resources that it is subscribed to, now and later.

        Raises RATE_LIMITED for a caller with too many, OVERLOADED while the process has too many or drains.
        """
        stream = self._admit(NotificationStream(caller, view, SessionFrames(), alive, self._close))
        follower = self._followers.of_session(view, session, stream.on_update)
        if follower is not None:
            stream.follow(follower, self._changes.follow(session, follower.wake))
        return stream

    def open_subscription(self, caller: Caller, view: View, frames: SubscriptionFrames) -> NotificationStream:
        """Return the stream of `subscriptions/listen`. Raises like `open_session`."""
        stream = self._admit(NotificationStream(caller, view, frames, _always_alive, self._close))
        follower = self._followers.of_resources(view, frames.resources, stream.on_update)
        if follower is not None:
            stream.follow(follower, begin=follower.begin)
        return stream

    def end_all(self) -> None:
        """End every stream, and open no other: the clients connect to another replica."""
        self._draining = True
        for stream in [stream for own in self._open.values() for stream in own]:
            stream.end()

    def _admit(self, stream: NotificationStream) -> NotificationStream:
        owner = stream.caller.owner
        if len(self._open.get(owner, ())) >= MAX_STREAMS_OF_ONE:
            raise MeshError(Reason.RATE_LIMITED, message="too many streams are open", retry_after=10)
        if self._draining or sum(map(len, self._open.values())) >= MAX_STREAMS:
            raise MeshError(Reason.OVERLOADED, retry_after=10)
        self._open.setdefault(owner, set()).add(stream)
        stream.unsubscribe = self._facts.subscribe(stream.on_change)
        return stream

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
        self._updated: dict[str, None] = {}
        self._follower: ResourceFollower | None = None
        self._following: AbstractContextManager[None] = nullcontext()
        self._begin: Callable[[], Awaitable[frozenset[str]]] | None = None
        self.unsubscribe: Callable[[], None] = lambda: None

    def follow(
        self,
        follower: ResourceFollower,
        following: AbstractContextManager[None] | None = None,
        *,
        begin: Callable[[], Awaitable[frozenset[str]]] | None = None,
    ) -> None:
        """Let a follower report resources while the stream is served. `begin` completes before the first event."""
        self._follower, self._following, self._begin = follower, following or nullcontext(), begin

    def on_change(self, tool: ToolName) -> None:
        """Notice that a tool changed. Tags are not looked at: a tool may have lost one."""
        if self._view.name_of(tool):
            self._changed = True
            self._wake.set()

    def on_update(self, uri: str) -> None:
        """Notice that a resource changed."""
        self._updated[uri] = None
        if len(self._updated) > _MAX_UPDATED and self._follower is not None:
            self._updated = dict.fromkeys(sorted(self._follower.watched))
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
        with self._following:
            watched = await self._begin() if self._begin is not None else ()
            following = None if self._follower is None else asyncio.create_task(self._follower.run())
            try:
                await _send(send, self._frames.first(watched))
                await self._send_events(send)
            finally:
                if following is not None:
                    following.cancel()
        await send({"type": "http.response.body", "body": self._frames.last()})

    async def _send_events(self, send: Send) -> None:
        while not self._ended and await self._wait():
            if self._changed or self._updated:
                await _send(send, self._take_events())
                await asyncio.sleep(_QUIET_SECONDS)
            elif not self._ended:
                if not await self._alive():
                    break
                await _send(send, b": ping\n\n")

    def _take_events(self) -> bytes:
        tools = self._frames.list_changed() if self._changed else b""
        updated, self._updated, self._changed = self._updated, {}, False
        return tools + b"".join(map(self._frames.updated, updated))

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


async def _always_alive() -> bool:
    return True


async def _send(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})
