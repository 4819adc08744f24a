"""Trust through the real server: facts, scores, stages and revocation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.audit.v1 import usage_service_pb2 as usage_pb
from toolmesh.registry.v1 import lifecycle_service_pb2 as lifecycle_pb
from toolmesh.registry.v1 import registry_service_pb2 as registry_pb
from toolmesh.registry.v1 import trust_service_pb2 as pb

from libs.common.errors import Reason
from libs.common.tool_names import ToolName
from services.registry.adapters.trust.scores import CachedTrustScores
from services.registry.domain.trust.score import UNPROVEN
from services.registry.domain.trust.stages import Stage
from services.registry.tests.calls import PATIENCE, bearer, refusal
from services.registry.tests.conftest import QUIET, Replica, Start
from services.registry.tests.manifests import reader
from services.registry.tests.service_stubs import (
    ONE,
    TOOL,
    TWO,
    CountingAudit,
    counting_audit,
    lifecycle,
    register,
    sweep_once,
    trust,
    word,
)
from services.registry.tests.watch_client import WatchClient, complete

ANN, BEN = (f"did:web:acme.example:users:{name}" for name in ("ann", "ben"))


def ask(stub: Any, verb: str, token: str = "", **fields: Any) -> Any:
    request = getattr(pb, f"{verb}Request")(**fields)
    return getattr(stub, verb)(request, metadata=bearer(token) if token else None, timeout=PATIENCE)


async def components(replica: Replica, name: str = TOOL) -> dict[str, Any]:
    score = (await ask(trust(replica), "GetTrustScore", name=name)).score
    return {pb.TrustSignal.Name(each.signal).removeprefix("TRUST_SIGNAL_"): each for each in score.components}


def used(audit: CountingAudit, ran: int, succeeded: int, *, valid: float = 1.0, timely: float = 1.0) -> None:
    answer = usage_pb.GetToolUsageResponse(
        name=f"tools/{TOOL}", invalid_result_rate=1 - valid, within_latency_rate=timely
    )
    answer.usage.succeeded, answer.usage.failed, answer.usage.calls = succeeded, ran - succeeded, ran
    audit.answers[f"tools/{TOOL}"] = answer


@pytest.fixture
async def counted(start: Start, signer: Any, process_environment: Callable[[str], dict[str, str]]) -> Any:
    async with counting_audit(signer, process_environment) as audit:
        replica = await start(TOOLMESH_AUDIT_ADDRESS=str(audit.address))
        await register(replica, reader())
        yield replica, audit


@pytest.fixture
async def one(registry: Replica) -> Replica:
    await register(registry, reader())
    return registry


async def test_a_score_shows_every_signal_with_its_facts(counted: Any, signer: Any) -> None:
    replica, audit = counted
    used(audit, 1000, 900, valid=0.8, timely=0.7)
    stub = trust(replica)
    await ask(stub, "RecordSecurityAudit", version=ONE, level=pb.AUDIT_LEVEL_SELF_ASSESSED, passed=True, auditor="Acme")
    await ask(stub, "RecordVerification", version=ONE, kind=pb.VERIFICATION_KIND_REGRESSION, passed=True)
    await ask(trust(replica, "edge"), "RateTool", signer.mint(BEN, scope="tools:call"), version=ONE, stars=4)
    answer = await ask(stub, "GetTrustScore", name=TOOL)
    found = await components(replica)
    values = {name: round(each.value, 3) for name, each in found.items()}
    assert values == {
        "RELIABILITY": 0.9,
        "SCHEMA_COMPLIANCE": 0.8,
        "LATENCY_SLA": 0.7,
        "SECURITY_AUDIT": 0.5,
        "COMMUNITY_RATING": 0.75,
        "PROVIDER_REPUTATION": 0.5,
        "FRESHNESS": 1.0,
        "USAGE_VOLUME": 0.75,
    }
    assert found["RELIABILITY"].facts == {"calls": "1000", "rate": "0.9000"}
    assert found["PROVIDER_REPUTATION"].missing
    assert answer.score.version == ONE
    assert answer.score.score == pytest.approx(sum(each.contribution for each in answer.score.components), abs=1e-4)
    assert audit.asked[-1].declared_latency.seconds == 5


async def test_unknown_usage_is_missing_and_not_zero(one: Replica) -> None:
    found = await components(one)
    assert {name for name, each in found.items() if each.missing == "usage cannot be read"} == {
        "RELIABILITY",
        "SCHEMA_COMPLIANCE",
        "LATENCY_SLA",
        "USAGE_VOLUME",
    }


async def test_an_audit_counts_for_the_version_that_was_audited(one: Replica) -> None:
    audit = {"level": pb.AUDIT_LEVEL_THIRD_PARTY, "passed": True, "auditor": "Somebody else"}
    await ask(trust(one), "RecordSecurityAudit", version=ONE, **audit)  # type: ignore[arg-type]
    assert (await components(one))["SECURITY_AUDIT"].value == 1.0
    await register(one, reader(version="2.0.0"))
    assert (await components(one))["SECURITY_AUDIT"].missing


async def test_the_other_tools_of_a_namespace_make_its_reputation(one: Replica) -> None:
    await register(one, reader("acme.other_tool"), reader("beta.other_tool"))
    other = "tools/acme.other_tool/versions/1.0.0"
    await ask(trust(one), "RecordVerification", version=other, kind=pb.VERIFICATION_KIND_REGRESSION, passed=True)
    found = (await components(one))["PROVIDER_REPUTATION"]
    assert (found.facts["other_tools"], found.missing) == ("1", "")
    assert (await components(one, "beta.other_tool"))["PROVIDER_REPUTATION"].missing


async def test_a_subject_has_one_rating_of_a_version_and_may_change_it(one: Replica, signer: Any) -> None:
    edge = trust(one, "edge")
    ann, ben = (signer.mint(who, scope="tools:call") for who in (ANN, BEN))
    await ask(edge, "RateTool", ann, version=ONE, stars=1)
    second = await ask(edge, "RateTool", ben, version=ONE, stars=4)
    assert (second.average, second.ratings) == (2.5, 2)
    changed = await ask(edge, "RateTool", ann, version=ONE, stars=5)
    assert (changed.average, changed.ratings) == (4.5, 2)
    await register(one, reader(version="2.0.0"))
    newer = await ask(edge, "RateTool", ann, version=TWO, stars=2)
    assert (newer.average, newer.ratings) == (3.0, 2), "the newest of each subject counts"
    for stars in (0, 6):
        assert (await refusal(ask(edge, "RateTool", ann, version=ONE, stars=stars))).reason is Reason.INVALID_REQUEST


async def test_owners_and_delegates_may_not_rate_their_tools(registry: Replica, signer: Any) -> None:
    token = signer.mint(ANN, scope="tools:call tools:register")
    await register(registry, reader(), peer="edge", token=token)
    own = await refusal(ask(trust(registry, "edge"), "RateTool", token, version=ONE, stars=5))
    assert own.reason is Reason.PERMISSION_DENIED
    missing = await refusal(ask(trust(registry), "RateTool", version="tools/acme.gone/versions/1.0.0", stars=5))
    assert missing.reason is Reason.TOOL_VERSION_NOT_FOUND


async def test_only_the_operator_speaks_for_third_parties(one: Replica, signer: Any) -> None:
    audit = {"version": ONE, "level": pb.AUDIT_LEVEL_THIRD_PARTY, "passed": True, "auditor": "Friends"}
    token = signer.mint(scope="tools:admin")
    error = await refusal(ask(trust(one, "edge"), "RecordSecurityAudit", token, **audit))
    assert error.reason is Reason.PERMISSION_DENIED
    await ask(trust(one, "edge"), "RecordSecurityAudit", token, **(audit | {"level": pb.AUDIT_LEVEL_SELF_ASSESSED}))


async def test_a_fact_is_recorded_once_and_never_changed(one: Replica, engine: AsyncEngine) -> None:
    fields = {"version": ONE, "kind": pb.VERIFICATION_KIND_REGRESSION, "passed": True, "request_id": "r"}
    first = await ask(trust(one), "RecordVerification", **fields)  # type: ignore[arg-type]
    assert await ask(trust(one), "RecordVerification", **fields) == first  # type: ignore[arg-type]
    for statement in ("update verifications set passed = false", "delete from verifications"):
        with pytest.raises(DBAPIError):
            async with engine.begin() as connection:
                await connection.execute(text(statement))


async def test_a_tool_passes_every_gate_on_its_way_to_verified(counted: Any) -> None:
    replica, audit = counted
    stub = trust(replica)

    async def refused() -> set[str]:
        error = await refusal(ask(stub, "PromoteTool", name=TOOL))
        assert error.reason is Reason.FAILED_PRECONDITION
        return {violation.path for violation in error.violations}

    async def promoted() -> str:
        return pb.ContributionStage.Name((await ask(stub, "PromoteTool", name=TOOL)).stage)

    async def verify(*kinds: str) -> None:
        for kind in kinds:
            number = pb.VerificationKind.Value(f"VERIFICATION_KIND_{kind}")
            await ask(stub, "RecordVerification", version=ONE, kind=number, passed=True)

    async def audited(level: int) -> None:
        await ask(stub, "RecordSecurityAudit", version=ONE, level=level, passed=True, auditor="x")

    assert await refused() == {"sandbox_deployment"}
    await verify("SANDBOX_DEPLOYMENT")
    assert await promoted() == "CONTRIBUTION_STAGE_SANDBOX"
    assert await refused() == {"integration_tests", "invocations"}
    await verify("INTEGRATION_TESTS")
    used(audit, 100, 95)
    assert await promoted() == "CONTRIBUTION_STAGE_BETA"
    assert await refused() == {"security_audit", "invocations"}
    await audited(pb.AUDIT_LEVEL_SELF_ASSESSED)
    used(audit, 1000, 990)
    assert await promoted() == "CONTRIBUTION_STAGE_GA"
    assert await refused() == {"third_party_audit", "sla_commitment", "provider_identity"}
    shown = await ask(stub, "GetStage", name=TOOL)
    assert {gate.gate: gate.met for gate in shown.gates} == dict.fromkeys(
        ("third_party_audit", "sla_commitment", "provider_identity"), False
    )
    await verify("SLA_COMMITMENT", "PROVIDER_IDENTITY")
    await audited(pb.AUDIT_LEVEL_THIRD_PARTY)
    assert await promoted() == "CONTRIBUTION_STAGE_VERIFIED"
    assert await refused() == set()
    stale = await refusal(ask(stub, "PromoteTool", name=TOOL, from_stage=pb.CONTRIBUTION_STAGE_GA))
    assert stale.reason is Reason.ETAG_MISMATCH


async def test_a_tool_is_demoted_only_backwards(counted: Any) -> None:
    replica, _ = counted
    stub = trust(replica)
    kind = pb.VERIFICATION_KIND_SANDBOX_DEPLOYMENT
    await ask(stub, "RecordVerification", version=ONE, kind=kind, passed=True)
    await ask(stub, "PromoteTool", name=TOOL)
    forward = await refusal(ask(stub, "DemoteTool", name=TOOL, to_stage=pb.CONTRIBUTION_STAGE_GA, reason="x"))
    assert forward.reason is Reason.FAILED_PRECONDITION
    for _ in range(2):
        answer = await ask(stub, "DemoteTool", name=TOOL, to_stage=pb.CONTRIBUTION_STAGE_SUBMITTED, reason="x")
        assert answer.stage == pb.CONTRIBUTION_STAGE_SUBMITTED


async def test_a_revoked_tool_is_gone_everywhere_until_the_operator_says_otherwise(start: Start, signer: Any) -> None:
    here, there = await start(poll_seconds=3600), await start(poll_seconds=3600)
    await there.application.wakeup.subscribed.wait()
    await register(here, reader(), reader(version="2.0.0"))
    await lifecycle(here).DisableTool(lifecycle_pb.DisableToolRequest(name=ONE, reason="off"))
    view = WatchClient()
    watch = view.open(there.stub("executor"))
    await view.follow(watch, complete)
    admin = signer.mint(scope="tools:admin tools:register tools:read")
    answer = await ask(trust(here, "edge"), "RevokeTool", admin, name=TOOL, reason="it steals")
    assert set(answer.versions) == {ONE, TWO}
    await view.follow(watch, lambda now: {word(v.state) for v in now.versions.values()} == {"quarantined"})
    watch.cancel()
    assert list((await ask(trust(here), "RevokeTool", name=TOOL, reason="again")).versions) == []
    for name in (TOOL, ONE):
        released = await refusal(
            lifecycle(here).ReleaseTool(lifecycle_pb.ReleaseToolRequest(name=name, reason="please"))
        )
        assert released.reason is Reason.FAILED_PRECONDITION
    new = await refusal(here.stub().RegisterTool(registry_pb.RegisterToolRequest(manifest=reader(version="3.0.0"))))
    assert new.reason is Reason.FAILED_PRECONDITION
    assert (await ask(trust(there), "GetTrustScore", name=TOOL)).revoked
    barred = await refusal(ask(trust(here, "edge"), "ReinstateTool", admin, name=TOOL, reason="please"))
    assert barred.reason is Reason.PEER_NOT_ALLOWED
    back = await ask(trust(here), "ReinstateTool", name=TOOL, reason="looked at")
    assert set(back.versions) == {ONE, TWO}
    found = await here.stub().GetTool(registry_pb.GetToolRequest(name=TOOL))
    assert [word(version.state) for version in found.versions] == ["available", "disabled"]
    never = await refusal(ask(trust(here), "ReinstateTool", name=TOOL, reason="x"))
    assert never.reason is Reason.FAILED_PRECONDITION


async def test_a_reinstatement_releases_what_the_revocation_took_and_nothing_else(registry: Replica) -> None:
    await register(registry, reader(), reader(version="2.0.0"))
    broken = lifecycle_pb.QuarantineToolRequest(name=ONE, reason="it wrote what it did not declare")
    await lifecycle(registry, "executor").QuarantineTool(broken)
    assert list((await ask(trust(registry), "RevokeTool", name=TOOL, reason="looked into")).versions) == [TWO]
    assert list((await ask(trust(registry), "ReinstateTool", name=TOOL, reason="fine")).versions) == [TWO]
    found = await registry.stub().GetTool(registry_pb.GetToolRequest(name=TOOL))
    assert [word(version.state) for version in found.versions] == ["available", "quarantined"]
    # After a review, the next revocation quarantines it like the other.
    await lifecycle(registry).ReleaseTool(lifecycle_pb.ReleaseToolRequest(name=ONE, reason="looked at"))
    await ask(trust(registry), "RevokeTool", name=TOOL, reason="again")
    assert set((await ask(trust(registry), "ReinstateTool", name=TOOL, reason="fine")).versions) == {ONE, TWO}


async def test_searches_use_stored_scores(counted: Any, engine: AsyncEngine) -> None:
    replica, audit = counted
    tool, unknown = ToolName.parse(TOOL), ToolName("acme", "unknown")
    scores = CachedTrustScores(engine, QUIET, interval=3600)
    await scores.start()
    used(audit, 1000, 1000)
    await ask(trust(replica), "RecordVerification", version=ONE, kind=pb.VERIFICATION_KIND_REGRESSION, passed=True)
    await scores.refresh()
    exact = (await ask(trust(replica), "GetTrustScore", name=TOOL)).score.score
    assert scores.scores_of([tool, unknown]) == {tool: pytest.approx(exact, abs=1e-4), unknown: UNPROVEN}
    await scores.stop()


async def test_policies_see_stage_and_publisher_and_what_only_was_computed_again_ends_no_cached_answer(
    counted: Any, engine: AsyncEngine
) -> None:
    replica, _ = counted
    tool, ended = ToolName.parse(TOOL), list[int]()
    scores = CachedTrustScores(engine, QUIET, interval=3600, on_change=lambda: ended.append(1))
    verify = partial(ask, trust(replica), "RecordVerification", version=ONE, passed=True)
    await verify(kind=pb.VERIFICATION_KIND_SANDBOX_DEPLOYMENT)
    await scores.refresh()
    first, (revision, seen) = scores.trust_in(tool), scores.changed_since(0)
    assert (first.stage, first.publisher_verified, list(seen), len(ended)) == (Stage.SUBMITTED, True, [first], 1)
    async with engine.begin() as connection:
        await connection.execute(text("update trust_scores set compute_time = now()"))
    await scores.refresh()
    assert (scores.changed_since(revision)[1], len(ended)) == ([scores.trust_in(tool)], 1)
    await ask(trust(replica), "PromoteTool", name=TOOL, reason="tried")
    async with engine.begin() as connection:
        # So old that a refresh does not read the score again: stage and publisher change by themselves.
        await connection.execute(text("update trust_scores set compute_time = '2020-01-01Z'"))
    await scores.refresh()
    assert (scores.trust_in(tool).stage, len(ended)) == (Stage.SANDBOX, 2)
    async with engine.begin() as connection:
        await connection.execute(text("update namespaces set owner = 'did:web:acme.example'"))
    await scores.refresh()
    assert (scores.trust_in(tool).publisher_verified, len(ended)) == (False, 3)
    await verify(kind=pb.VERIFICATION_KIND_PROVIDER_IDENTITY)
    await scores.refresh()
    assert scores.trust_in(tool).publisher_verified


async def test_the_sweep_scores_what_has_none_and_leaves_it_while_the_log_is_away(
    counted: Any, engine: AsyncEngine, start: Start
) -> None:
    replica, audit = counted
    used(audit, 1000, 0, valid=0.0, timely=0.0)
    async with engine.begin() as connection:
        await connection.execute(text("delete from trust_scores"))
    await sweep_once(replica)
    async with engine.begin() as connection:
        first = await connection.scalar(text("select score from trust_scores"))
        await connection.execute(
            text("update trust_scores set compute_time = :then"), {"then": datetime(2026, 1, 1, tzinfo=UTC)}
        )
    assert first is not None
    assert first < UNPROVEN
    deaf = await start()
    await sweep_once(deaf)
    async with engine.begin() as connection:
        assert await connection.scalar(text("select score from trust_scores")) == first


async def test_a_sweep_weighs_every_tool_by_its_own_facts(counted: Any, engine: AsyncEngine, signer: Any) -> None:
    replica, audit = counted
    await register(replica, reader("acme.other_tool"), reader("beta.other_tool"), reader("beta.third_tool"))
    used(audit, 1000, 900, valid=0.8, timely=0.7)
    beta = "tools/beta.other_tool/versions/1.0.0"
    third_party = {"level": pb.AUDIT_LEVEL_THIRD_PARTY, "passed": True, "auditor": "Somebody else"}
    await ask(trust(replica), "RecordSecurityAudit", version=beta, **third_party)  # type: ignore[arg-type]
    await ask(trust(replica, "edge"), "RateTool", signer.mint(BEN, scope="tools:call"), version=ONE, stars=1)
    old = text("update trust_scores set compute_time = :then")
    # The second sweep uses the scores of other tools from the first.
    for _ in range(2):
        async with engine.begin() as connection:
            await connection.execute(old, {"then": datetime(2026, 1, 1, tzinfo=UTC)})
        await sweep_once(replica)
    async with engine.begin() as connection:
        stored: dict[str, float] = {
            row[0]: row[1] for row in await connection.execute(text("select tool, score from trust_scores"))
        }
    assert len(stored) == 4
    assert len(set(stored.values())) == 4
    for name, kept in stored.items():
        alone = (await ask(trust(replica), "GetTrustScore", name=name)).score.score
        assert kept == pytest.approx(alone, abs=1e-4), name
