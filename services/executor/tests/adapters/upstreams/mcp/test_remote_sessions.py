"""Sessions with servers over HTTP are bounded, and no tenant closes those of another."""

from __future__ import annotations

from typing import Any

from toolmesh.registry.v1 import upstream_pb2 as upb

from libs.common.telemetry.log import Log
from services.executor.adapters.upstreams.directory import UpstreamConfig
from services.executor.adapters.upstreams.mcp.remote_sessions import RemoteSessions
from services.executor.domain.scheduling.heavy_work import Principal

LOG = Log("test", level="error")
QUIET = Principal("quiet", "ada")


class Connection:
    """A connection to a server of another organisation."""

    def __init__(self, owner: Any) -> None:
        self.owner, self.is_closed = owner, False

    async def close(self) -> None:
        self.is_closed = True


class Connections:
    """Opens connections."""

    def __init__(self) -> None:
        self.opened: list[Connection] = []

    def connect(self, upstream: UpstreamConfig, owner: Any) -> Any:
        self.opened.append(Connection(owner))
        return self.opened[-1]


def upstream(name: str = "fix") -> UpstreamConfig:
    endpoint = upb.UpstreamEndpoint(mcp_http=upb.McpHttpEndpoint(url="https://mcp.example"))
    return UpstreamConfig(name, 1, endpoint)


async def test_a_caller_keeps_its_session_until_it_is_forgotten() -> None:
    connections = Connections()
    sessions = RemoteSessions(connections, LOG)
    for _ in range(2):
        async with sessions.use(upstream(), QUIET):
            pass
    async with sessions.use(upstream("other"), QUIET):
        pass
    sessions.forget("fix")
    async with sessions.use(upstream(), QUIET):
        pass
    assert len(connections.opened) == 3
    await sessions.close()
    assert all(each.is_closed for each in connections.opened)


async def test_a_tenant_with_many_subjects_displaces_its_own_sessions_alone() -> None:
    connections = Connections()
    sessions = RemoteSessions(connections, LOG, max_sessions=4)
    async with sessions.use(upstream(), QUIET):
        pass
    for number in range(10):
        async with sessions.use(upstream(), Principal("loud", f"subject {number}")):
            pass
    async with sessions.use(upstream(), QUIET) as session:
        assert session is connections.opened[0]  # type: ignore[comparison-overlap]
    assert len(sessions._sessions) == 4
    await sessions.close()


async def test_a_session_that_is_displaced_while_a_call_uses_it_is_closed_after_the_call() -> None:
    connections = Connections()
    sessions = RemoteSessions(connections, LOG, max_sessions=1)
    async with sessions.use(upstream(), QUIET):
        async with sessions.use(upstream(), Principal("loud", "eve")):
            pass
        await sessions._closing.drain()
        assert not connections.opened[0].is_closed
    await sessions._closing.drain()
    assert connections.opened[0].is_closed
    await sessions.close()
