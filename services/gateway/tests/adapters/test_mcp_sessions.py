"""MCP sessions in Valkey. What replicas tell one another is tested through the endpoint."""

from __future__ import annotations

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.telemetry.log import Log
from services.gateway.adapters import mcp_sessions
from services.gateway.adapters.mcp_sessions import RedisSessions


async def test_an_owner_has_a_bounded_number_of_sessions(valkey_url: str) -> None:
    sessions = RedisSessions(valkey_url, lambda key: None, Log("test", level="error"))
    owner = new_id()
    opened = [await sessions.open(owner) for _ in range(mcp_sessions.MAX_SESSIONS_OF_ONE + 2)]
    assert [await sessions.is_open(owner, session) for session in opened[:3]] == [False, False, True]
    assert await sessions.is_open(owner, opened[-1])
    assert not await sessions.is_open(new_id(), opened[-1])
    assert await sessions.end(owner, opened[-1])
    assert not await sessions.end(owner, opened[-1])
    await sessions.stop()


async def test_an_unreachable_store_refuses_and_never_admits() -> None:
    sessions = RedisSessions("redis://127.0.0.1:1", lambda key: None, Log("test", level="error"))
    for attempt in (sessions.open("o"), sessions.is_open("o", "s"), sessions.end("o", "s"), sessions.cancel("k")):
        with pytest.raises(MeshError) as caught:
            await attempt
        assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    await sessions.stop()
