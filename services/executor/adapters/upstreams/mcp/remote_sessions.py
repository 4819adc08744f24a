"""The sessions with MCP servers over HTTP: one for each caller and upstream, bounded, and fair to tenants."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from libs.common.runtime.tasks import BackgroundTasks
from libs.common.telemetry.log import Log
from services.executor.adapters.upstreams.directory import UpstreamConfig
from services.executor.adapters.upstreams.mcp.http import HttpServer
from services.executor.domain.scheduling.heavy_work import Owner, Principal

MAX_SESSIONS = 256


class Connector(Protocol):
    """Opens connections to upstreams."""

    def connect(self, upstream: UpstreamConfig, owner: Owner) -> HttpServer:
        """Return a server over HTTP for one caller, not opened yet."""
        ...


class SessionKey(NamedTuple):
    """The upstream as it is configured now, and the caller."""

    upstream_id: str
    endpoint_digest: str
    principal: Principal

    @property
    def tenant(self) -> str:
        """Who shares the bound: callers without a tenant stand for themselves."""
        return self.principal.tenant or f"subject {self.principal.subject}"


@dataclass(slots=True)
class _Session:
    server: HttpServer
    calls: int = 0


class RemoteSessions:
    """Keeps sessions open between calls. One that is forgotten while calls use it is closed after the last of them."""

    def __init__(self, connector: Connector, log: Log, *, max_sessions: int = MAX_SESSIONS) -> None:
        self._connector, self._max_sessions = connector, max_sessions
        self._closing = BackgroundTasks(log, "connections not closed cleanly")
        # The least recently used first.
        self._sessions: dict[SessionKey, _Session] = {}

    @asynccontextmanager
    async def use(self, upstream: UpstreamConfig, principal: Principal) -> AsyncIterator[HttpServer]:
        """Lend the session of a caller for one call."""
        key = SessionKey(upstream.upstream_id, upstream.endpoint_digest, principal)
        session = self._sessions.pop(key, None)
        if session is None:
            self._make_room()
            session = _Session(self._connector.connect(upstream, principal))
        self._sessions[key] = session
        session.calls += 1
        try:
            yield session.server
        finally:
            session.calls -= 1
            if self._sessions.get(key) is not session:
                self._close_if_unused(session)

    def forget(self, upstream_id: str) -> None:
        """Forget the sessions with an upstream."""
        for key in [key for key in self._sessions if key.upstream_id == upstream_id]:
            self._close_if_unused(self._sessions.pop(key))

    async def close(self) -> None:
        """Close every session."""
        for session in self._sessions.values():
            self._closing.spawn(session.server.close())
        self._sessions.clear()
        await self._closing.drain()

    def _make_room(self) -> None:
        """Forget the least recently used session of the tenant that has most, so that none displaces another's."""
        if len(self._sessions) < self._max_sessions:
            return
        largest = Counter(key.tenant for key in self._sessions).most_common(1)[0][0]
        oldest = next(key for key in self._sessions if key.tenant == largest)
        self._close_if_unused(self._sessions.pop(oldest))

    def _close_if_unused(self, session: _Session) -> None:
        if not session.calls:
            self._closing.spawn(session.server.close())
