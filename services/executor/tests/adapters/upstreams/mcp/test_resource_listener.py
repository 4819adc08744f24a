"""What a listener takes of a server: changes of watched resources, bounded, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from services.executor.adapters.upstreams.mcp.resource_listener import MAX_PENDING, ResourceListener, wait_for_event
from services.executor.adapters.upstreams.mcp.transport import RpcError

UPDATED, ACKNOWLEDGED = "notifications/resources/updated", "notifications/subscriptions/acknowledged"


async def test_changes_of_watched_resources_are_taken_once() -> None:
    listener = ResourceListener(["a://x"])
    for uri in ("a://x", "a://x", "b://y", None, "a://x" + "y" * 3000):
        listener.notified(UPDATED, {"uri": uri})
    assert listener.take() == ["a://x"]
    assert (listener.take(), listener.changed.is_set()) == ([], False)


async def test_very_many_changes_are_those_of_the_watched_resources() -> None:
    listener = ResourceListener(["a://x"])
    for number in range(MAX_PENDING + 1):
        listener.notified(UPDATED, {"uri": f"a://x/{number}"})
    assert listener.take() == ["a://x"]


@pytest.mark.parametrize("agreed", [{}, {"resourceSubscriptions": ["a://x"]}, {"resourceSubscriptions": "no"}, None])
async def test_an_agreement_without_every_resource_is_a_refusal(agreed: object) -> None:
    listener = ResourceListener(["a://x", "a://y"])
    listener.notified(ACKNOWLEDGED, {"notifications": agreed})
    assert listener.ready.is_set()
    assert listener.refusal is not None


async def test_a_listener_cannot_be_asked() -> None:
    listener = ResourceListener(["a://x"])
    assert listener.capabilities == {}
    with pytest.raises(RpcError):
        await listener.answer({"k": {"method": "roots/list"}})


async def test_waiting_ends_with_the_work() -> None:
    async def fail() -> None:
        raise RpcError(1, "no")

    with pytest.raises(RpcError):
        await wait_for_event(asyncio.Event(), asyncio.ensure_future(fail()), None)
