"""WatchTools through the real server: no change is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import redis.asyncio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import trust_service_pb2 as trust_pb

from libs.common.errors import Reason
from services.registry.domain.catalog.changes import Position
from services.registry.tests.calls import PATIENCE, bearer, refusal
from services.registry.tests.conftest import DEAD_BUS, Replica, Start
from services.registry.tests.manifests import reader
from services.registry.tests.service_stubs import ONE, trust
from services.registry.tests.watch_client import WatchClient, alive, complete, holds
from tests.harness.stores import run_valkey

# So long that a test which needs a poll can only succeed if the wakeup triggers it.
NEVER = 3600.0
TOOL = "tools/acme.find_order"


async def register_one(stub: Any, version: str) -> Any:
    """Register a version; a registry that is too busy is asked again, as it advises."""
    while True:
        try:
            request = pb.RegisterToolRequest(manifest=reader(version=version))
            return (await stub.RegisterTool(request, timeout=PATIENCE)).version
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise


async def register(stub: Any, *versions: str) -> dict[str, Any]:
    registered = await asyncio.gather(*(register_one(stub, version) for version in versions))
    for version in registered:
        version.ClearField("trust")
        version.ClearField("health")
    return {version.name: version for version in registered}


async def test_a_watch_begins_with_everything_and_goes_on_with_every_change(registry: Replica) -> None:
    stub, view = registry.stub("executor"), WatchClient()
    before = await register(registry.stub(), "1.0.0", "1.1.0")
    watch = view.open(stub)
    await view.follow(watch, complete)
    assert view.versions == before
    after = await register(registry.stub(), "1.2.0")
    await view.follow(watch, holds(3))
    assert view.versions == before | after
    await view.follow(watch, alive)
    assert Position.of_token(view.token) is not None


async def test_an_empty_registry_has_a_complete_snapshot(registry: Replica) -> None:
    view = WatchClient()
    await view.follow(view.open(registry.stub("audit")), complete)
    assert view.kinds == ["snapshot_complete"]


async def test_a_resumed_watch_sends_only_new_changes(registry: Replica) -> None:
    stub, view = registry.stub("executor"), WatchClient()
    await register(registry.stub(), "1.0.0", "1.1.0")
    watch = view.open(stub)
    await view.follow(watch, complete)
    watch.cancel()
    [added] = await register(registry.stub(), "1.2.0")
    watch = view.open(stub)
    # A poll that began before the registration may send a heartbeat first.
    await view.follow(watch, lambda seen: bool(seen.applied) and seen.kinds[-1] == "heartbeat")
    assert [kind for kind in view.kinds if kind != "heartbeat"] == ["upserted"]
    assert view.applied == [added]


async def test_no_change_is_lost_over_many_resumptions_while_fifty_versions_are_registered(start: Start) -> None:
    """The watcher is disconnected after every few events and resumes at either replica."""
    replicas = [await start(), await start()]
    stubs = [replica.stub("executor") for replica in replicas]
    view = WatchClient()
    await view.follow(view.open(stubs[0]), complete)
    versions = [f"1.{n}.0" for n in range(50)]
    writing = asyncio.gather(
        register(replicas[0].stub(), *versions[::2]), register(replicas[1].stub(), *versions[1::2])
    )
    turn = 0
    while len(view.versions) < 50:
        turn += 1
        watch = view.open(stubs[turn % 2])
        await view.follow(watch, lambda held: len(held.kinds) >= 3)
        watch.cancel()
        assert not complete(view)
    stored: dict[str, Any] = {}
    for part in await writing:
        stored |= part
    assert view.versions == stored
    # Each change was sent exactly once.
    assert len(view.applied) == 50


async def test_a_snapshot_that_is_read_while_versions_are_registered_misses_none(registry: Replica) -> None:
    stubs = [registry.stub("executor") for _ in range(3)]
    versions = [f"1.{n}.0" for n in range(50)]
    views = [WatchClient() for _ in stubs]

    async def follow(view: WatchClient, stub: Any) -> None:
        while not holds(50)(view):
            # A registry that is too busy ends a watch; its clients open it again.
            with suppress(grpc.aio.AioRpcError):
                await view.follow(view.open(stub), holds(50))

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(register(registry.stub(), *versions))
        for view, stub in zip(views, stubs, strict=True):
            group.create_task(follow(view, stub))
    assert all(view.versions == writing.result() for view in views)


@pytest.mark.parametrize("token", ["", "nonsense", Position("another-epoch", 1).token()])
async def test_a_foreign_token_is_answered_with_a_snapshot(registry: Replica, token: str) -> None:
    stored = await register(registry.stub(), "1.0.0")
    view = WatchClient(versions={"tools/acme.gone/versions/1.0.0": None}, token=token)
    await view.follow(view.open(registry.stub("executor")), complete)
    assert view.versions == stored


async def test_a_token_from_the_future_is_answered_with_a_snapshot(registry: Replica) -> None:
    """As after a restore from a backup."""
    stub, view = registry.stub("executor"), WatchClient()
    await register(registry.stub(), "1.0.0")
    await view.follow(view.open(stub), complete)
    position = Position.of_token(view.token)
    assert position is not None
    view.token = Position(position.epoch, position.sequence + 1).token()
    await view.follow(view.open(stub), complete)


async def test_a_token_older_than_the_log_is_answered_with_a_snapshot(registry: Replica, engine: AsyncEngine) -> None:
    stub, view = registry.stub("executor"), WatchClient()
    await register(registry.stub(), "1.0.0")
    await view.follow(view.open(stub), complete)
    stored = await register(registry.stub(), "1.1.0", "1.2.0")
    async with engine.begin() as connection:
        await connection.execute(text("delete from changes where sequence <= 2"))
    await view.follow(view.open(stub), complete)
    assert stored.items() <= view.versions.items()


async def test_a_watch_sends_changes_and_removals(registry: Replica, engine: AsyncEngine) -> None:
    """As lifecycle verbs leave them: a change with another state, and a removal."""
    stub, view = registry.stub("executor"), WatchClient()
    await register(registry.stub(), "1.0.0", "2.0.0")
    watch = view.open(stub)
    await view.follow(watch, complete)
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "insert into changes select 3, tool, version, 'disabled', 'for a test', null, now() "
                "from tool_versions where version = '1.0.0'"
            )
        )
        await connection.execute(
            text("insert into changes values (4, 'acme.find_order', '2.0.0', null, null, null, now())")
        )
        await connection.execute(text("delete from tool_versions where version = '2.0.0'"))
        await connection.execute(text("update change_counter set last = 4"))
    await view.follow(watch, lambda held: len(held.versions) == 1)
    version = view.versions["tools/acme.find_order/versions/1.0.0"]
    assert (version.state_reason, version.etag) == ("for a test", "3")
    assert version.manifest.version == "1.0.0"


async def test_a_watch_works_without_a_bus(start: Start) -> None:
    first, second = await start(redis_url=DEAD_BUS), await start(redis_url=DEAD_BUS)
    view = WatchClient()
    watch = view.open(second.stub("executor"))
    await view.follow(watch, complete)
    stored = await register(first.stub(), "1.0.0", "1.1.0")
    await view.follow(watch, holds(2))
    assert view.versions == stored


@pytest.fixture
def mortal_bus(tmp_path: Path) -> Iterator[str]:
    """A Valkey that the test may stop."""
    with run_valkey(tmp_path) as url:
        yield url


async def test_a_watch_outlives_its_bus(start: Start, mortal_bus: str) -> None:
    first, second = await start(redis_url=mortal_bus), await start(redis_url=mortal_bus)
    view = WatchClient()
    watch = view.open(second.stub("executor"))
    await view.follow(watch, complete)
    await register(first.stub(), "1.0.0")
    await view.follow(watch, holds(1))
    async with redis.asyncio.Redis.from_url(mortal_bus) as client:
        await client.shutdown(nosave=True)
    await register(first.stub(), "1.1.0")
    await view.follow(watch, holds(2))


async def test_the_bus_carries_a_change_to_other_replicas_without_waiting_for_their_next_look(start: Start) -> None:
    first, second = await start(poll_seconds=NEVER), await start(poll_seconds=NEVER)
    for replica in (first, second):
        await replica.application.wakeup.subscribed.wait()
    view = WatchClient()
    watch = view.open(second.stub("executor"))
    await view.follow(watch, complete)
    await register(first.stub(), "1.0.0")
    await view.follow(watch, holds(1))


async def test_without_a_bus_the_own_watchers_still_hear_at_once(start: Start) -> None:
    replica = await start(redis_url=DEAD_BUS, poll_seconds=NEVER)
    view = WatchClient()
    watch = view.open(replica.stub("executor"))
    await view.follow(watch, complete)
    await register(replica.stub(), "1.0.0")
    await view.follow(watch, holds(1))


@pytest.mark.parametrize("peer", ["edge", "orchestrator"])
async def test_who_is_not_of_the_mesh_watches_with_a_token_alone(registry: Replica, signer: Any, peer: str) -> None:
    for metadata, reason in ((None, Reason.UNAUTHENTICATED), (bearer(signer.mint(scope="")), Reason.SCOPE_MISSING)):
        watch = registry.stub(peer).WatchTools(pb.WatchToolsRequest(), metadata=metadata)
        assert (await refusal(watch.read())).reason is reason


async def test_a_stopping_registry_sends_its_watchers_away_and_they_resume_elsewhere(start: Start) -> None:
    first, second = await start(), await start()
    await register(first.stub(), "1.0.0")
    view = WatchClient()
    watch = view.open(first.stub("executor"))
    await view.follow(watch, complete)
    stopping = asyncio.ensure_future(first.application.stop())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await view.follow(watch, lambda held: False)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await stopping
    first.application.stop = _already_stopped  # type: ignore[method-assign]
    await register(second.stub(), "1.1.0")
    await view.follow(view.open(second.stub("executor")), holds(2))
    assert not complete(view)


async def _already_stopped() -> None:
    """The test stopped it."""


async def test_a_watch_reports_the_trust_in_tools_at_its_beginning_and_with_every_change(start: Start) -> None:
    replica = await start()
    await register(replica.stub(), "1.0.0")
    verified = partial(
        trust_pb.RecordVerificationRequest, version=ONE, kind=trust_pb.VERIFICATION_KIND_SANDBOX_DEPLOYMENT
    )
    await trust(replica).RecordVerification(verified(passed=True), timeout=PATIENCE)
    view = WatchClient()
    watch = view.open(replica.stub("executor"))
    await view.follow(watch, lambda held: TOOL in held.trusts)
    first = view.trusts[TOOL]
    assert (first.stage, first.publisher_verified) == (trust_pb.CONTRIBUTION_STAGE_SUBMITTED, True)
    assert 0 < first.score < 100
    await trust(replica).PromoteTool(trust_pb.PromoteToolRequest(name=TOOL, reason="test"), timeout=PATIENCE)
    await view.follow(watch, lambda held: held.trusts[TOOL].stage == trust_pb.CONTRIBUTION_STAGE_SANDBOX)
    watch.cancel()
    # A watch that resumes gets it again, because trust has no place in the log of changes.
    view.trusts.clear()
    await view.follow(view.open(replica.stub("executor")), lambda held: TOOL in held.trusts)
    assert not complete(view)
