"""Lifecycle verbs through the real server: changes, notifications, history and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.audit.v1 import usage_service_pb2 as usage_pb
from toolmesh.registry.v1 import discovery_service_pb2 as discovery_pb
from toolmesh.registry.v1 import discovery_service_pb2_grpc as discovery_rpc
from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
from toolmesh.registry.v1 import namespace_service_pb2 as namespace_pb
from toolmesh.registry.v1 import registry_service_pb2 as registry_pb
from toolmesh.registry.v1 import tool_manifest_pb2

from libs.audit_client.act import ActEncoder
from libs.audit_client.outbox import ActRecorder
from libs.common.errors import Reason
from libs.common.runtime.clock import SystemClock
from services.registry.adapters.postgres.catalogue import PostgresCatalogue
from services.registry.adapters.postgres.histories import PostgresHistories
from services.registry.adapters.trust.usage_reader import UnavailableUsageReader
from services.registry.domain.lifecycle.sweep_lifecycle import sweep_lifecycle
from services.registry.tests.calls import PATIENCE, bearer, refusal
from services.registry.tests.conftest import Replica, Start
from services.registry.tests.manifests import reader
from services.registry.tests.polling import until
from services.registry.tests.service_stubs import (
    ONE,
    TOOL,
    TWO,
    counting_audit,
    lifecycle,
    namespaces,
    register,
    sweep_once,
    word,
)
from services.registry.tests.watch_client import WatchClient, complete


def ask(stub: Any, verb: str, name: str, *, token: str = "", **more: Any) -> Any:
    request = getattr(pb, f"{verb}Request")(name=name, **{"reason": "because", **more})
    return getattr(stub, verb)(request, metadata=bearer(token) if token else None, timeout=PATIENCE)


def stamp(moment: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(moment)
    return message


def ahead(**span: float) -> Timestamp:
    return stamp(datetime.now(UTC) + timedelta(**span))


async def states(replica: Replica, name: str = TOOL) -> list[str]:
    found = await replica.stub().GetTool(registry_pb.GetToolRequest(name=name))
    return [word(version.state) for version in found.versions]


@pytest.fixture
async def two(registry: Replica) -> Replica:
    await register(registry, reader(), reader(version="2.0.0", title="The new one"))
    return registry


async def test_a_deprecation_carries_dates_a_successor_and_a_guide(two: Replica) -> None:
    sunset = ahead(days=10)
    answer = await ask(
        lifecycle(two), "DeprecateVersion", ONE, sunset_time=sunset, successor=TWO, migration_guide_url="https://acme/x"
    )
    version = answer.version
    assert word(version.state) == "deprecated"
    assert (version.state_reason, version.manifest.title) == ("because", "")
    assert version.deprecation.sunset_time == sunset
    assert version.deprecation.successor == TWO
    assert version.deprecation.migration_guide_url == "https://acme/x"
    assert version.deprecation.remove_time == stamp(sunset.ToDatetime(tzinfo=UTC) + timedelta(days=30))
    resolved = await two.stub().ResolveTool(registry_pb.ResolveToolRequest(tool=TOOL, version_constraint="1.0.0"))
    assert resolved.version.deprecation == version.deprecation


async def test_discovery_shows_when_a_deprecated_version_ends_and_what_to_use_instead(two: Replica) -> None:
    sunset = ahead(days=10)
    await ask(lifecycle(two), "DeprecateVersion", ONE, sunset_time=sunset, successor=TWO)
    stub = two.stub("operator", discovery_rpc.DiscoveryServiceStub)
    older = discovery_pb.SearchFilter(version_constraint="1.0.0")
    search = discovery_pb.SearchToolsRequest(names=[TOOL], mode=discovery_pb.SEARCH_MODE_LEXICAL, filter=older)

    async def found() -> Any:
        return (await stub.SearchTools(search, timeout=PATIENCE)).tools

    [tool] = await until(found, lambda tools: tools and tools[0].HasField("deprecation"))
    loaded = await stub.GetToolSchemas(discovery_pb.GetToolSchemasRequest(tools=[ONE, TWO]), timeout=PATIENCE)
    schemas = {schema.version: schema for schema in loaded.schemas}
    for shown in (tool, schemas[ONE]):
        assert (shown.deprecation.successor, shown.deprecation.sunset_time) == (TWO, sunset)
    assert not schemas[TWO].HasField("deprecation")


async def test_a_deprecation_that_cannot_be_kept_names_everything_that_is_wrong(two: Replica) -> None:
    stub = lifecycle(two)
    past = await refusal(
        ask(stub, "DeprecateVersion", ONE, sunset_time=ahead(seconds=-1), successor="tools/acme.gone/versions/1.0.0")
    )
    assert past.reason is Reason.INVALID_REQUEST
    assert {violation.path for violation in past.violations} == {"sunset_time", "successor"}
    for successor in (ONE, "acme.find_order", "tools/acme.find_order/versions/9.0.0"):
        error = await refusal(ask(stub, "DeprecateVersion", ONE, successor=successor))
        assert [violation.path for violation in error.violations] == ["successor"]
    assert await states(two) == ["available", "available"]


@pytest.mark.parametrize(
    "sunset",
    [Timestamp(seconds=253402300799), Timestamp(seconds=10**15), Timestamp(seconds=4 * 10**9, nanos=-5)],
    ids=["the last day there is", "beyond all years", "no moment at all"],
)
async def test_a_sunset_date_out_of_range_is_refused(two: Replica, sunset: Timestamp) -> None:
    error = await refusal(ask(lifecycle(two), "DeprecateVersion", ONE, sunset_time=sunset))
    assert error.reason is Reason.INVALID_REQUEST
    assert [violation.path for violation in error.violations] == ["sunset_time"]


@pytest.mark.parametrize("more", [{"reason": "a\0b"}, {"request_id": "a\0b"}])
async def test_a_text_that_cannot_be_stored_is_the_callers_mistake(two: Replica, more: dict[str, str]) -> None:
    error = await refusal(ask(lifecycle(two), "DisableTool", ONE, **more))
    assert error.reason is Reason.INVALID_REQUEST
    assert await states(two) == ["available", "available"]


async def test_successors_never_lead_in_a_circle(two: Replica) -> None:
    stub = lifecycle(two)
    await ask(stub, "DeprecateVersion", ONE, successor=TWO)
    error = await refusal(ask(stub, "DeprecateVersion", TWO, successor=ONE))
    assert [violation.path for violation in error.violations] == ["successor"]


async def test_of_two_that_become_each_others_successor_at_once_one_is_refused(two: Replica) -> None:
    stub = lifecycle(two)
    calls = [
        ask(stub, "DeprecateVersion", ONE, successor=TWO),
        ask(stub, "DeprecateVersion", TWO, successor=ONE),
    ]
    codes = await asyncio.gather(*(call.code() for call in calls))
    assert sorted(code.name for code in codes) == ["INVALID_ARGUMENT", "OK"]


async def test_a_deprecation_can_be_revised_and_taken_back(two: Replica) -> None:
    stub = lifecycle(two)
    first = (await ask(stub, "DeprecateVersion", ONE)).version
    second = (await ask(stub, "DeprecateVersion", ONE, sunset_time=ahead(days=200), etag=first.etag)).version
    assert second.deprecation.deprecate_time == first.deprecation.deprecate_time
    assert second.deprecation.sunset_time.seconds > first.deprecation.sunset_time.seconds
    back = (await ask(stub, "UndeprecateVersion", ONE)).version
    assert (word(back.state), back.HasField("deprecation")) == ("available", False)


async def test_title_and_tags_of_a_tool_follow_its_latest_version(two: Replica) -> None:
    async def shown() -> tuple[str, str]:
        tool = (await two.stub().GetTool(registry_pb.GetToolRequest(name=TOOL))).tool
        return tool.latest_version, tool.title

    assert await shown() == ("2.0.0", "The new one")
    await ask(lifecycle(two), "QuarantineTool", TWO)
    assert await shown() == ("1.0.0", "Find an order")
    await ask(lifecycle(two), "QuarantineTool", ONE)
    assert await shown() == ("", "The new one")
    await ask(lifecycle(two), "ReleaseTool", TOOL)
    assert await shown() == ("2.0.0", "The new one")


async def test_a_tools_verb_reaches_every_version_it_applies_to(two: Replica) -> None:
    stub = lifecycle(two)
    await ask(stub, "DeprecateVersion", ONE)
    answer = await ask(stub, "QuarantineTool", TOOL)
    assert [version.name for version in answer.versions] == [TWO, ONE]
    again = await refusal(ask(stub, "QuarantineTool", TOOL))
    assert (again.reason, again.metadata["state"]) == (Reason.FAILED_PRECONDITION, "quarantined")
    await ask(stub, "ReleaseTool", TOOL)
    assert await states(two) == ["available", "deprecated"]


async def test_an_old_etag_changes_nothing(two: Replica) -> None:
    stub = lifecycle(two)
    etag = (await ask(stub, "DisableTool", ONE)).versions[0].etag
    await ask(stub, "EnableTool", ONE, etag=etag)
    error = await refusal(ask(stub, "DisableTool", ONE, etag=etag))
    assert error.reason is Reason.ETAG_MISMATCH
    assert error.row.grpc_status == 10
    of_a_tool = await refusal(ask(stub, "DisableTool", TOOL, etag=etag))
    assert of_a_tool.reason is Reason.INVALID_REQUEST
    assert await states(two) == ["available", "available"]


async def test_of_many_with_the_same_etag_exactly_one_wins(start: Start) -> None:
    replicas = [await start(), await start()]
    version = await register(replicas[0], reader())
    stubs = [lifecycle(replica) for replica in replicas]
    calls = [ask(stubs[n % 2], "DisableTool", ONE, etag=version.etag, reason=f"try {n}") for n in range(12)]
    codes = await asyncio.gather(*(call.code() for call in calls))
    assert sorted(code.name for code in codes) == ["ABORTED"] * 11 + ["OK"]


async def test_a_repeated_request_is_answered_and_done_once(two: Replica, signer: Any) -> None:
    stub = lifecycle(two)
    first = await ask(stub, "DisableTool", ONE, request_id="r1")
    again = await ask(stub, "DisableTool", ONE, request_id="r1")
    assert again == first
    other_verb = await refusal(ask(stub, "EnableTool", ONE, request_id="r1"))
    assert other_verb.reason is Reason.IDEMPOTENCY_CONFLICT
    whole = await ask(stub, "QuarantineTool", TOOL, request_id="r2")
    assert await ask(stub, "QuarantineTool", TOOL, request_id="r2") == whole
    # Request ids are scoped to the subject: the same id of another subject is another request.
    token = signer.mint(scope="tools:admin")
    others = await refusal(ask(lifecycle(two, "edge"), "DisableTool", ONE, request_id="r1", token=token))
    assert others.reason is Reason.FAILED_PRECONDITION


async def test_an_unknown_version_cannot_be_changed(two: Replica) -> None:
    stub = lifecycle(two)
    version = await refusal(ask(stub, "SunsetVersion", "tools/acme.find_order/versions/9.0.0"))
    tool = await refusal(ask(stub, "DisableTool", "acme.nothing"))
    nonsense = await refusal(ask(stub, "SunsetVersion", "acme.find_order"))
    assert (version.reason, tool.reason, nonsense.reason) == (
        Reason.TOOL_VERSION_NOT_FOUND,
        Reason.TOOL_NOT_FOUND,
        Reason.INVALID_REQUEST,
    )


async def test_a_draft_is_not_called_until_it_is_published(registry: Replica) -> None:
    version = await register(registry, reader(), draft=True)
    assert word(version.state) == "draft"
    error = await refusal(registry.stub().ResolveTool(registry_pb.ResolveToolRequest(tool=TOOL)))
    assert (error.reason, error.metadata["state"]) == (Reason.TOOL_UNAVAILABLE, "draft")
    published = (await ask(lifecycle(registry), "PublishVersion", ONE)).version
    assert word(published.state) == "available"
    await registry.stub().ResolveTool(registry_pb.ResolveToolRequest(tool=TOOL))


async def test_a_manifest_says_where_its_version_starts(registry: Replica) -> None:
    availability = tool_manifest_pb2.Availability(required_credentials=["key"], deferred=True)
    manifest = reader(interface=tool_manifest_pb2.ToolInterface(availability=availability))
    version = await register(registry, manifest, draft=True)
    seen = [word(version.state)]
    for verb in (
        "PublishVersion",
        "CompleteSetup",
        "LoadVersion",
        "DeferVersion",
        "MarkRequiresSetup",
        "CompleteSetup",
    ):
        seen.append(word((await ask(lifecycle(registry), verb, ONE)).version.state))
    assert seen == ["draft", "requires_setup", "deferred", "available", "deferred", "requires_setup", "deferred"]


async def test_every_change_reaches_a_watcher_of_another_replica(start: Start) -> None:
    # No poll happens within this test: only the wakeup triggers one.
    here, there = await start(poll_seconds=3600), await start(poll_seconds=3600)
    await there.application.wakeup.subscribed.wait()
    await register(here, reader())
    view = WatchClient()
    watch = view.open(there.stub("executor"))
    await view.follow(watch, complete)
    for verb, name, state in (
        ("QuarantineTool", TOOL, "quarantined"),
        ("ReleaseTool", ONE, "available"),
        ("DisableTool", ONE, "disabled"),
    ):
        await ask(lifecycle(here), verb, name)
        await view.follow(watch, lambda now, state=state: word(now.versions[ONE].state) == state)  # type: ignore[misc]
    watch.cancel()


async def test_an_administrator_of_a_tenant_changes_only_tools_of_namespaces_where_it_may_publish(
    two: Replica, signer: Any
) -> None:
    ann, stub = "did:web:acme.example:users:ann", lifecycle(two, "edge")
    token = signer.mint(ann, scope="tools:admin tools:read", tenant="acme")
    changes = [("DisableTool", TOOL), ("DisableTool", ONE), ("DeferVersion", ONE), ("DeprecateVersion", ONE)]
    for verb, name in (*changes, ("QuarantineTool", TOOL), ("RemoveVersion", ONE)):
        assert (await refusal(ask(stub, verb, name, token=token))).reason is Reason.PERMISSION_DENIED
    assert await states(two) == ["available", "available"]
    shared = namespace_pb.AddDelegateRequest(name="namespaces/acme", subject=ann)
    await namespaces(two).AddDelegate(shared, timeout=PATIENCE)
    for verb, name in changes[2:]:
        await ask(stub, verb, name, token=token)
    assert (await refusal(ask(stub, "ReleaseTool", TOOL, token=token))).reason is Reason.AUTHORITY_EXCEEDED
    anywhere = signer.mint("did:web:toolmesh.local:users:root", scope="tools:admin")
    assert (await ask(stub, "DisableTool", TWO, token=anywhere)).versions


async def test_history_says_who_did_what_when_and_why(two: Replica, signer: Any) -> None:
    token = signer.mint("did:web:acme.example:users:ann", scope="tools:admin tools:read")
    await ask(lifecycle(two, "edge"), "DeprecateVersion", ONE, reason="too old", token=token)
    await ask(lifecycle(two, "executor"), "QuarantineTool", TOOL, reason="it wrote")
    stub = lifecycle(two)
    found = (await stub.ListTransitions(pb.ListTransitionsRequest(name=ONE))).transitions
    assert [(t.verb, word(t.from_state), word(t.to_state), t.actor, t.through, t.reason) for t in found] == [
        ("quarantine", "deprecated", "quarantined", "executor", "executor", "it wrote"),
        ("deprecate", "available", "deprecated", "did:web:acme.example:users:ann", "edge", "too old"),
        ("register", "unspecified", "available", "operator", "operator", ""),
    ]
    assert all(t.HasField("time") and t.version == ONE for t in found)


async def test_history_comes_in_pages_that_belong_to_one_question(two: Replica) -> None:
    stub = lifecycle(two)
    for verb in ("DisableTool", "EnableTool"):
        await ask(stub, verb, TOOL)
    pages, token = [], ""
    while True:
        page = await stub.ListTransitions(pb.ListTransitionsRequest(name=TOOL, page_size=2, page_token=token))
        pages.append([t.sequence for t in page.transitions])
        token = page.next_page_token
        if not token:
            break
    assert pages == [[6, 5], [4, 3], [2, 1]]
    first = await stub.ListTransitions(pb.ListTransitionsRequest(name=TOOL, page_size=2))
    other = await refusal(stub.ListTransitions(pb.ListTransitionsRequest(name=ONE, page_token=first.next_page_token)))
    assert other.reason is Reason.PAGE_TOKEN_INVALID


@pytest.mark.parametrize(
    "statement", ["update transitions set reason = 'x'", "delete from transitions", "truncate transitions"]
)
async def test_history_is_only_ever_added_to(two: Replica, engine: AsyncEngine, statement: str) -> None:
    with pytest.raises(DBAPIError):
        async with engine.begin() as connection:
            await connection.execute(text(statement))


async def test_who_may_change_states(two: Replica, signer: Any) -> None:
    without = await refusal(
        ask(lifecycle(two, "edge"), "DisableTool", ONE, token=signer.mint(scope="tools:register tools:read"))
    )
    assert without.reason is Reason.SCOPE_MISSING
    peer = await refusal(ask(lifecycle(two, "executor"), "DisableTool", ONE))
    assert peer.reason is Reason.PEER_NOT_ALLOWED
    assert (await ask(lifecycle(two, "executor"), "QuarantineTool", ONE)).versions
    assert (await ask(lifecycle(two, "edge"), "ReleaseTool", ONE, token=signer.mint(scope="tools:admin"))).versions


async def test_a_reason_is_asked_for_where_others_will_read_it(two: Replica) -> None:
    error = await refusal(ask(lifecycle(two), "QuarantineTool", ONE, reason=""))
    assert [violation.path for violation in error.violations] == ["reason"]


async def test_past_its_sunset_a_version_is_refused_at_once_and_marked_by_one_replica(
    start: Start, engine: AsyncEngine
) -> None:
    replicas = [await start(), await start()]
    await register(replicas[0], reader())
    await ask(lifecycle(replicas[0]), "DeprecateVersion", ONE)
    async with engine.begin() as connection:
        # Simulates elapsed time: the date was announced long ago.
        await connection.execute(
            text(
                "update tool_versions set deprecation = jsonb_set(deprecation, '{sunset_time}', to_jsonb(:then ::text))"
            ),
            {"then": (datetime.now(UTC) - timedelta(seconds=1)).isoformat()},
        )
    error = await refusal(replicas[0].stub().ResolveTool(registry_pb.ResolveToolRequest(tool=TOOL)))
    assert error.reason is Reason.TOOL_DEPRECATED
    assert await states(replicas[0]) == ["deprecated"]
    disabled = await refusal(ask(lifecycle(replicas[0]), "DisableTool", ONE))
    assert disabled.metadata["state"] == "sunset"
    turns = await asyncio.gather(*(replica.application.sweeper.sweep() for replica in replicas * 2))
    assert any(turns)
    assert await states(replicas[1]) == ["sunset"]
    found = (await lifecycle(replicas[1]).ListTransitions(pb.ListTransitionsRequest(name=ONE))).transitions
    assert [(t.verb, t.actor) for t in found][:2] == [("expire", "registry"), ("deprecate", "operator")]


async def test_sunset_version_ends_a_version_at_once(two: Replica) -> None:
    stub = lifecycle(two)
    early = await refusal(ask(stub, "SunsetVersion", ONE))
    assert early.metadata["state"] == "available"
    announced = (await ask(stub, "DeprecateVersion", ONE, successor=TWO)).version.deprecation
    ended = (await ask(stub, "SunsetVersion", ONE)).version.deprecation
    assert ended.sunset_time.seconds < announced.sunset_time.seconds
    assert ended.remove_time.seconds - ended.sunset_time.seconds == 30 * 86400
    error = await refusal(two.stub().ResolveTool(registry_pb.ResolveToolRequest(tool=TOOL, version_constraint="1.0.0")))
    assert (error.reason, error.metadata["successor"]) == (Reason.TOOL_DEPRECATED, TWO)


async def test_a_version_that_was_ended_by_hand_is_not_marked_again(two: Replica, engine: AsyncEngine) -> None:
    """A sweep that read a version before it was ended by hand does not change it."""

    class Stale(PostgresHistories):
        async def past_sunset(self, now: datetime, limit: int) -> list[str]:
            return [ONE]

    await ask(lifecycle(two), "DeprecateVersion", ONE)
    await ask(lifecycle(two), "SunsetVersion", ONE)
    sweep_once = await sweep_lifecycle(
        histories=Stale(engine),
        catalogue=PostgresCatalogue(engine, ActRecorder(ActEncoder("registry"))),
        usage=UnavailableUsageReader(),
        wakeup=two.application.wakeup,
        clock=SystemClock(),
    )
    assert sweep_once.ended == ()
    found = (await lifecycle(two).ListTransitions(pb.ListTransitionsRequest(name=ONE))).transitions
    assert [t.verb for t in found] == ["sunset", "deprecate", "register"]


class TestRemoval:
    """A version is retired when it is past its sunset and grace period, and unused."""

    @pytest.fixture
    async def ended(self, start: Start, signer: Any, process_environment: Callable[[str], dict[str, str]]) -> Any:
        async with counting_audit(signer, process_environment) as audit:
            replica = await start(TOOLMESH_AUDIT_ADDRESS=str(audit.address))
            await register(replica, reader(), reader(version="2.0.0"))
            await ask(lifecycle(replica), "DeprecateVersion", ONE, successor=TWO, grace_period=timedelta(days=1))
            await ask(lifecycle(replica), "SunsetVersion", ONE)
            yield replica, audit

    async def over(self, engine: AsyncEngine) -> None:
        """Simulate elapsed time: the grace period ended a second ago."""
        async with engine.begin() as connection:
            await connection.execute(
                text(
                    "update tool_versions set deprecation ="
                    " jsonb_set(deprecation, '{remove_time}', to_jsonb(:then ::text))"
                    " where version = '1.0.0'"
                ),
                {"then": (datetime.now(UTC) - timedelta(seconds=1)).isoformat()},
            )

    def called(self, audit: Any, when: datetime, calls: int) -> None:
        answer = usage_pb.GetToolUsageResponse(name=ONE, last_call_time=stamp(when))
        answer.usage.calls = calls
        audit.answers[ONE] = answer

    async def test_not_before_the_grace_period_is_over(self, ended: Any) -> None:
        replica, audit = ended
        error = await refusal(ask(lifecycle(replica), "RemoveVersion", ONE))
        assert error.reason is Reason.FAILED_PRECONDITION
        assert error.metadata["remove_time"]
        assert ONE not in [request.name for request in audit.asked]

    async def test_an_unused_version_is_removed(self, ended: Any, engine: AsyncEngine) -> None:
        replica, audit = ended
        await self.over(engine)
        self.called(audit, datetime.now(UTC) - timedelta(hours=25), 3)
        answer = await ask(lifecycle(replica), "RemoveVersion", ONE, request_id="r")
        assert word(answer.removed.state) == "retired"
        assert (await ask(lifecycle(replica), "RemoveVersion", ONE, request_id="r")).removed == answer.removed
        assert await states(replica) == ["available", "retired"]

    async def test_removal_of_a_called_version_is_postponed(self, ended: Any, engine: AsyncEngine) -> None:
        replica, audit = ended
        await self.over(engine)
        self.called(audit, datetime.now(UTC) - timedelta(hours=23), 3)
        answer = (await ask(lifecycle(replica), "RemoveVersion", ONE)).blocked
        assert (answer.calls, answer.window.seconds, word(answer.version.state)) == (3, 86400, "sunset")
        later = answer.version.deprecation.remove_time.ToDatetime(tzinfo=UTC)
        assert later > datetime.now(UTC) + timedelta(days=6)

    async def test_unknown_usage_removes_nothing(self, ended: Any, engine: AsyncEngine, start: Start) -> None:
        await self.over(engine)
        without = await start()
        error = await refusal(ask(lifecycle(without), "RemoveVersion", ONE))
        assert error.reason is Reason.SERVICE_UNAVAILABLE
        assert await states(without) == ["available", "sunset"]
        replica, audit = ended
        self.called(audit, datetime.now(UTC) - timedelta(days=9), 3)
        audit.answers[ONE].coverage.log_records = 20_000
        behind = await refusal(ask(lifecycle(replica), "RemoveVersion", ONE))
        assert behind.reason is Reason.SERVICE_UNAVAILABLE

    async def test_force_does_not_wait(self, ended: Any) -> None:
        replica, audit = ended
        assert word((await ask(lifecycle(replica), "RemoveVersion", ONE, force=True)).removed.state) == "retired"
        assert ONE not in [request.name for request in audit.asked]
        running = await refusal(ask(lifecycle(replica), "RemoveVersion", TWO, force=True))
        assert running.metadata["state"] == "available"

    async def test_a_quarantined_version_is_retired_by_force_only(self, ended: Any) -> None:
        replica, _ = ended
        await ask(lifecycle(replica), "QuarantineTool", TWO)
        assert (await refusal(ask(lifecycle(replica), "RemoveVersion", TWO))).reason is Reason.FAILED_PRECONDITION
        assert word((await ask(lifecycle(replica), "RemoveVersion", TWO, force=True)).removed.state) == "retired"

    async def test_the_sweep_removes_what_is_due_and_keeps_what_is_called(
        self, ended: Any, engine: AsyncEngine
    ) -> None:
        replica, audit = ended
        await self.over(engine)
        self.called(audit, datetime.now(UTC), 1)
        await sweep_once(replica)
        assert await states(replica) == ["available", "sunset"]
        await self.over(engine)
        self.called(audit, datetime.now(UTC) - timedelta(days=2), 1)
        await sweep_once(replica)
        assert await states(replica) == ["available", "retired"]

    async def test_the_force_policy_removes_a_called_version(
        self, ended: Any, engine: AsyncEngine, start: Start
    ) -> None:
        strict = await start(TOOLMESH_REMOVAL_POLICY="force")
        await self.over(engine)
        await sweep_once(strict)
        assert await states(strict) == ["available", "retired"]
