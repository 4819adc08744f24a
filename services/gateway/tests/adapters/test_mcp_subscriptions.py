"""Subscriptions in Valkey: per session and upstream, bounded, and unreadable there."""

from __future__ import annotations

import os

import pytest
import redis.asyncio

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.sealing import KEY_BYTES, Seal
from services.gateway.adapters.mcp_sessions import SUBSCRIPTIONS_KEY
from services.gateway.adapters.mcp_subscriptions import MAX_SUBSCRIPTIONS, RedisSubscriptions
from services.gateway.mcp.session_changes import session_digest

SECRET = "file:///home/ada/plan.txt"


def new_seal() -> Seal:
    return Seal([os.urandom(KEY_BYTES)])


async def test_subscriptions_are_kept_by_session_and_upstream(valkey_url: str) -> None:
    subscriptions, session = RedisSubscriptions(valkey_url, new_seal()), new_id()
    await subscriptions.add("o", session, "docs", SECRET)
    await subscriptions.add("o", session, "docs", SECRET)
    await subscriptions.add("o", session, "mail", "mail://1")
    assert await subscriptions.list(session, "docs") == {SECRET}
    assert await subscriptions.list(new_id(), "docs") == frozenset()
    await subscriptions.remove("o", session, "mail", SECRET)
    await subscriptions.remove("o", session, "mail", "mail://1")
    assert await subscriptions.list(session, "mail") == frozenset()
    await subscriptions.close()


async def test_a_session_has_a_bounded_number(valkey_url: str) -> None:
    subscriptions, session = RedisSubscriptions(valkey_url, new_seal()), new_id()
    for number in range(MAX_SUBSCRIPTIONS):
        await subscriptions.add("o", session, "docs", f"file:///{number}")
    with pytest.raises(MeshError) as caught:
        await subscriptions.add("o", session, "docs", SECRET)
    assert caught.value.reason is Reason.RATE_LIMITED
    assert len(await subscriptions.list(session, "docs")) == MAX_SUBSCRIPTIONS
    await subscriptions.close()


async def test_only_the_key_reads_them(valkey_url: str) -> None:
    subscriptions, session = RedisSubscriptions(valkey_url, new_seal()), new_id()
    await subscriptions.add("o", session, "docs", SECRET)
    client = redis.asyncio.Redis.from_url(valkey_url)
    stored = await client.hgetall(SUBSCRIPTIONS_KEY + session_digest(session))
    assert stored
    assert all(SECRET.encode() not in part for pair in stored.items() for part in pair)
    other = RedisSubscriptions(valkey_url, new_seal())
    assert await other.list(session, "docs") == frozenset()
    for each in (client.aclose(), other.close(), subscriptions.close()):
        await each


async def test_an_unreachable_store_refuses() -> None:
    subscriptions = RedisSubscriptions("redis://127.0.0.1:1", new_seal())
    attempts = (subscriptions.add("o", "s", "n", "u"), subscriptions.remove("o", "s", "n", "u"))
    for attempt in (*attempts, subscriptions.list("s", "n")):
        with pytest.raises(MeshError) as caught:
            await attempt
        assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    await subscriptions.close()
