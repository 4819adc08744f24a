"""WatchTools for a caller: what policy forbids is never shown, and what changes for the caller is told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from toolmesh.registry.v1 import registry_service_pb2 as pb

from libs.common.errors import Reason
from libs.common.rpc.stream_slots import StreamLimits
from libs.common.testing.clock import ManualClock
from libs.common.tool_names import ToolName
from services.registry import wiring
from services.registry.convert.manifest import manifest_of
from services.registry.domain.catalog import watch_usable as module
from services.registry.domain.catalog.changes import Position
from services.registry.domain.catalog.watch_tools import (
    Event,
    HealthChanged,
    Heartbeat,
    SnapshotComplete,
    TrustChanged,
    VersionRemoved,
    VersionUpserted,
)
from services.registry.domain.catalog.watch_usable import ASK_AGAIN_SECONDS, watch_usable
from services.registry.domain.health.health import Health, VersionHealth
from services.registry.domain.model import LifecycleState, Standing, ToolVersion, Usability, VersionHead
from services.registry.domain.trust.tool_trust import ToolTrust
from services.registry.tests.calls import bearer, refusal
from services.registry.tests.conftest import Replica, Start
from services.registry.tests.manifests import reader
from services.registry.tests.service_stubs import register
from services.registry.tests.watch_client import WatchClient, complete

AT = Position("epoch", 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def version(name: str) -> ToolVersion:
    manifest = manifest_of(reader(name))
    standing = Standing(LifecycleState.AVAILABLE, NOW, 1)
    head = VersionHead(manifest.name, manifest.version, manifest.digest, 1, NOW, "operator", standing)
    return ToolVersion(head, manifest)


A, B, C = (version(f"acme.{name}") for name in "abc")


class Rules:
    """Policy that forbids some tools, and a catalogue of all versions."""

    def __init__(self) -> None:
        self.forbidden: set[str] = set()
        self.asked: list[list[str]] = []
        self.clock = ManualClock()

    async def usability_of(self, heads: Sequence[VersionHead]) -> Sequence[Usability]:
        self.asked.append([head.tool.tool_id for head in heads])
        return [
            Usability.FORBIDDEN if head.tool.tool_id in self.forbidden else Usability.NEEDS_APPROVAL for head in heads
        ]

    async def with_manifests(self, heads: Sequence[VersionHead]) -> Sequence[ToolVersion]:
        return [each for each in (A, B, C) if each.head in heads]

    async def told(self, *events: Event | set[str] | float) -> list[Any]:
        """Return what the caller is told. A set replaces the forbidden tools, a number lets time pass."""

        async def every() -> AsyncGenerator[Event, None]:
            for event in events:
                if isinstance(event, set):
                    self.forbidden = event
                elif isinstance(event, float):
                    self.clock.advance(event)
                else:
                    yield event

        fakes: Any = self
        watch = watch_usable(every(), catalogue=fakes, policy=fakes, clock=self.clock)
        return [event async for event in watch]


def upserts(versions: Iterable[ToolVersion], at: Position | None = None) -> list[VersionUpserted]:
    return [VersionUpserted(each, at) for each in versions]


async def test_a_snapshot_shows_what_the_caller_may_call_and_asks_about_it_together() -> None:
    rules = Rules()
    told = await rules.told({"b"}, *upserts([A, B, C]), SnapshotComplete(AT))
    assert told == [*upserts([A, C]), SnapshotComplete(AT)]
    assert rules.asked == [["a", "b", "c"]]


async def test_a_large_snapshot_is_asked_about_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH", 2)
    rules = Rules()
    told = await rules.told(*upserts([A, B, C]), VersionRemoved(A.head.name, None), SnapshotComplete(AT))
    assert told == [*upserts([A, B, C]), VersionRemoved(A.head.name, None), SnapshotComplete(AT)]
    assert rules.asked == [["a", "b"], ["c"]]


async def test_changes_and_removals_of_what_is_forbidden_are_not_told() -> None:
    told = await Rules().told({"b"}, *upserts([A, B], AT), *(VersionRemoved(each.head.name, AT) for each in (A, B)))
    assert told == [*upserts([A], AT), VersionRemoved(A.head.name, AT)]


async def test_a_change_may_take_a_tool_away_or_bring_it() -> None:
    told = await Rules().told({"b"}, *upserts([A, B], AT), {"a"}, *upserts([A, B], AT))
    assert told == [*upserts([A], AT), VersionRemoved(A.head.name, AT), *upserts([B], AT)]


async def test_new_policies_are_noticed_without_any_change_of_a_tool() -> None:
    rules, beat = Rules(), Heartbeat(AT)
    told = await rules.told({"b"}, *upserts([A, B], AT), {"a"}, ASK_AGAIN_SECONDS - 1, beat, 1.0, beat, beat)
    assert told == [*upserts([A], AT), beat, beat, VersionRemoved(A.head.name, AT), *upserts([B], AT), beat]
    assert len(rules.asked) == 3


async def test_new_policies_are_noticed_while_versions_change_all_the_time() -> None:
    rules = Rules()
    told = await rules.told(*upserts([A, C], AT), {"a"}, ASK_AGAIN_SECONDS, *upserts([C], AT))
    assert told == [*upserts([A, C, C], AT), VersionRemoved(A.head.name, AT)]


@pytest.mark.parametrize("kind", ["trust", "health"])
async def test_trust_and_health_are_asked_about_again_and_told_of_visible_tools_alone(kind: str) -> None:
    def changed(*versions: ToolVersion) -> Event:
        if kind == "trust":
            return TrustChanged([ToolTrust(each.head.tool, 5) for each in versions], AT)
        return HealthChanged([VersionHealth(each.head.name, Health.DEGRADED) for each in versions], AT)

    told = await Rules().told({"b"}, *upserts([A, B, C], AT), {"c"}, changed(A, B, C), changed(C))
    assert told == [
        *upserts([A, C], AT),
        *upserts([B], AT),
        VersionRemoved(C.head.name, AT),
        changed(A, B),
    ] or told == [
        *upserts([A, C], AT),
        VersionRemoved(C.head.name, AT),
        *upserts([B], AT),
        changed(A, B),
    ]


async def test_a_caller_watches_through_the_server_and_begins_with_a_snapshot_each_time(
    registry: Replica, signer: Any
) -> None:
    await register(registry, reader("acme.open"), reader("acme.closed", tags=["barred"]))
    metadata = bearer(signer.mint(scope="tools:read"))
    stub, view = registry.stub("orchestrator"), WatchClient()
    for _ in range(2):
        watch = stub.WatchTools(pb.WatchToolsRequest(resume_token=view.token), metadata=metadata)
        view.kinds.clear()
        await view.follow(watch, complete)
        assert list(view.versions) == ["tools/acme.open/versions/1.0.0"]
        watch.cancel()
    assert view.trusts.keys() <= {ToolName("acme", "open").resource}


async def test_a_caller_has_so_many_watches_and_the_mesh_as_many_as_it_needs(registry: Replica, signer: Any) -> None:
    metadata, stub = bearer(signer.mint(scope="tools:read")), registry.stub("orchestrator")
    open_watches = [stub.WatchTools(pb.WatchToolsRequest(), metadata=metadata) for _ in range(4)]
    for watch in open_watches:
        await watch.read()
    refused = await refusal(stub.WatchTools(pb.WatchToolsRequest(), metadata=metadata).read())
    assert refused.reason is Reason.RATE_LIMITED
    await registry.stub("executor").WatchTools(pb.WatchToolsRequest()).read()


async def test_watches_of_callers_keep_no_service_from_its_watch(
    start: Start, signer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "_WATCH_LIMITS", StreamLimits(per_process=1))
    registry = await start()
    metadata = bearer(signer.mint(scope="tools:read"))
    await registry.stub("orchestrator").WatchTools(pb.WatchToolsRequest(), metadata=metadata).read()
    services = [registry.stub("executor").WatchTools(pb.WatchToolsRequest()) for _ in range(2)]
    for watch in services:
        assert await watch.read()
