"""WatchResources: each resource is a call, and a watch ends with its time and its token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.executor.domain.model import Caller, Request, Result
from services.executor.domain.resources.watch_resources import MAX_SECONDS, WatchEvent, WatchResources
from services.executor.domain.scheduling.heavy_work import Principal
from services.executor.tests.samples import a_caller, a_request, a_result


class Servers:
    """Servers whose resources change as a test says: a list of changes, or what happens instead."""

    def __init__(self, *steps: list[str] | Callable[[], None]) -> None:
        self._steps = list(steps)
        self.watched: list[tuple[str, Principal, Sequence[str]]] = []

    @asynccontextmanager
    async def watch(self, upstream_id: str, owner: Principal, uris: Sequence[str]) -> AsyncIterator[Servers]:
        self.watched.append((upstream_id, owner, uris))
        yield self

    async def next(self, seconds: float) -> list[str]:
        step = self._steps.pop(0)
        if isinstance(step, list):
            return step
        step()
        return []


class Calls:
    """Calls that are refused for some resources."""

    def __init__(self, *refused: bytes) -> None:
        self._refused = refused
        self.made: list[bytes] = []

    async def execute(self, request: Request) -> Result:
        self.made.append(request.arguments)
        if request.arguments in self._refused:
            raise MeshError(Reason.TOOL_NOT_IN_TOKEN)
        return a_result()


def never(_: Caller) -> bool:
    return False


def requests(*uris: str, caller: Caller | None = None) -> dict[str, Request]:
    return {uri: a_request(arguments=uri.encode(), caller=caller or a_caller(tenant="acme")) for uri in uris}


async def test_each_resource_is_a_call_and_changes_follow() -> None:
    clock, calls = ManualClock(), Calls(b"b")
    servers = Servers(["a"], [], ["c", "a"], lambda: clock.advance(MAX_SECONDS))
    asked = requests("a", "b", "c")
    events = [event async for event in WatchResources(calls.execute, servers, never, clock).stream("fix", asked)]
    assert events == [WatchEvent(watching=("a", "c")), *(WatchEvent(updated=uri) for uri in ("a", "c", "a"))]
    assert calls.made == [b"a", b"b", b"c"]
    caller = asked["a"].caller
    assert servers.watched == [("fix", Principal("acme", caller.subject), ("a", "c"))]


async def test_a_watch_of_which_all_is_refused_watches_nothing() -> None:
    servers = Servers()
    watch = WatchResources(Calls(b"a", b"b").execute, servers, never, ManualClock())
    with pytest.raises(MeshError) as caught:
        await anext(watch.stream("fix", requests("a", "b")))
    assert caught.value.reason is Reason.TOOL_NOT_IN_TOKEN
    assert servers.watched == []


async def test_a_watch_ends_with_its_token() -> None:
    clock, revoked = ManualClock(), False

    def revoke() -> None:
        nonlocal revoked
        revoked = True

    watch = WatchResources(Calls().execute, Servers(["a"], revoke), lambda _: revoked, clock).stream("f", requests("a"))
    assert [await anext(watch), await anext(watch)] == [WatchEvent(watching=("a",)), WatchEvent(updated="a")]
    with pytest.raises(MeshError) as caught:
        await anext(watch)
    assert caught.value.reason is Reason.TOKEN_REVOKED
    caller = a_caller(authority_ends=clock.now().timestamp() + 60)
    servers = Servers(lambda: clock.advance(60))
    watch = WatchResources(Calls().execute, servers, never, clock).stream("f", requests("a", caller=caller))
    await anext(watch)
    with pytest.raises(MeshError) as caught:
        await anext(watch)
    assert caught.value.reason is Reason.TOKEN_EXPIRED
