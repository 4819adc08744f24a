"""MCP sessions in Valkey. What replicas tell one another is tested through the endpoint."""

from __future__ import annotations

import os

import pytest
import redis.asyncio

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.sealing import KEY_BYTES, Seal
from libs.common.telemetry.log import Log
from services.gateway.adapters import mcp_sessions
from services.gateway.adapters.mcp_sessions import ANSWER_KEY, RedisSessions
from services.gateway.mcp.context import ClientFacts
from services.gateway.mcp.session_changes import SessionChanges

SEAL = Seal([os.urandom(KEY_BYTES)])
FORMS = ClientFacts(elicitation=True, log_level="info")


async def test_an_owner_has_a_bounded_number_of_sessions(valkey_url: str) -> None:
    sessions = RedisSessions(valkey_url, SEAL, lambda key: None, SessionChanges(), Log("test", level="error"))
    owner = new_id()
    opened = [await sessions.open(owner, FORMS) for _ in range(mcp_sessions.MAX_SESSIONS_OF_ONE + 2)]
    assert [await sessions.get(owner, session) for session in opened[:3]] == [None, None, FORMS]
    assert await sessions.get(owner, opened[-1]) == FORMS
    assert await sessions.get(new_id(), opened[-1]) is None
    assert await sessions.end(owner, opened[-1])
    assert not await sessions.end(owner, opened[-1])
    await sessions.stop()


async def test_answers_are_collected_until_all_are_there(valkey_url: str) -> None:
    sessions = RedisSessions(valkey_url, SEAL, lambda key: None, SessionChanges(), Log("test", level="error"))
    question, keys = new_id(), ["x", "y"]
    assert await sessions.collect(question, "x", b"1", keys) is None
    assert await sessions.collect(question, "x", b"2", keys) is None
    assert await sessions.collect(new_id(), "y", b"3", keys) is None
    assert await sessions.collect(question, "y", b"4", keys) == {"x": b"2", "y": b"4"}
    # The tool did not get them, and the client says it again.
    assert await sessions.collect(question, "y", b"5", keys) == {"x": b"2", "y": b"5"}
    await sessions.forget(question, keys)
    assert await sessions.collect(question, "y", b"4", keys) is None
    await sessions.stop()


async def test_only_the_key_reads_an_answer(valkey_url: str) -> None:
    sessions = RedisSessions(valkey_url, SEAL, lambda key: None, SessionChanges(), Log("test", level="error"))
    question, answer = new_id(), b'{"content": "the launch code is 0000"}'
    assert await sessions.collect(question, "x", answer, ["x", "y"]) is None
    client = redis.asyncio.Redis.from_url(valkey_url)
    keys = [key async for key in client.scan_iter(ANSWER_KEY + "*")]
    assert keys
    stored = b"".join([await client.dump(key) or b"" for key in keys])
    assert b"launch code" not in stored
    other = Seal([os.urandom(KEY_BYTES)])
    replica = RedisSessions(valkey_url, other, lambda key: None, SessionChanges(), Log("test", level="error"))
    # Without the key of the first answer it is asked for again.
    assert await replica.collect(question, "y", b"1", ["x", "y"]) is None
    assert await replica.collect(question, "x", b"2", ["x", "y"]) == {"x": b"2", "y": b"1"}
    for part in (sessions.stop(), replica.stop(), client.aclose()):
        await part


async def test_an_unreachable_store_refuses_and_never_admits() -> None:
    sessions = RedisSessions(
        "redis://127.0.0.1:1", SEAL, lambda key: None, SessionChanges(), Log("test", level="error")
    )
    attempts = (
        *(sessions.open("o", FORMS), sessions.get("o", "s"), sessions.update("o", "s", FORMS)),
        *(sessions.end("o", "s"), sessions.cancel("k"), sessions.collect("q", "k", b"1", ["k"])),
    )
    for attempt in attempts:
        with pytest.raises(MeshError) as caught:
            await attempt
        assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    await sessions.stop()
