"""The kept key set."""

from __future__ import annotations

import asyncio

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.gateway.adapters.jwks_cache import JwksCache


class Issuer:
    """Answers a new key set each time, or fails."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = False

    async def __call__(self) -> bytes:
        self.asked += 1
        await asyncio.sleep(0)
        if self.away:
            raise MeshError(Reason.SERVICE_UNAVAILABLE)
        return b"%d" % self.asked


async def test_the_issuer_is_asked_once_while_the_answer_is_fresh() -> None:
    issuer, clock = Issuer(), ManualClock()
    keys = JwksCache(issuer, clock)
    assert await asyncio.gather(*(keys.get() for _ in range(10))) == [b"1"] * 10
    clock.advance(1.9)
    assert await keys.get() == b"1"
    clock.advance(0.2)
    assert await keys.get() == b"2"


async def test_the_last_answer_holds_while_the_issuer_is_away() -> None:
    issuer, clock = Issuer(), ManualClock()
    keys = JwksCache(issuer, clock)
    await keys.get()
    issuer.away = True
    clock.advance(3600)
    assert [await keys.get(), await keys.get()] == [b"1", b"1"]
    assert issuer.asked == 2
    issuer.away = False
    clock.advance(2)
    assert await keys.get() == b"3"


async def test_without_any_answer_the_failure_is_the_answer() -> None:
    issuer = Issuer()
    issuer.away = True
    with pytest.raises(MeshError) as caught:
        await JwksCache(issuer, ManualClock()).get()
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
