"""Check without policies: token coverage and the fields of a decision."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from libs.common.auth.authority import ArgumentConstraint
from libs.common.auth.identity import Grant
from libs.common.errors import MeshError, Reason
from services.authz.domain.model import (
    Allow,
    ContextField,
    Decision,
    Deny,
    FoundLabels,
    NeedsApproval,
    Obligation,
    Refusal,
    SubjectFacts,
    Verdict,
)
from services.authz.tests.decision_fakes import (
    ALLOWED,
    NOW,
    Engine,
    FakeJournal,
    FakeLabels,
    FixedProvider,
    caller_with,
    check_over,
    mail,
)


@pytest.fixture
def engine() -> Engine:
    return Engine()


async def decide(engine: Engine, *grants: Grant, version: str = "1.2.3", ttl: int = 60, **facts: Any) -> Decision:
    return await check_over(engine, ttl=ttl).decide(caller_with(*grants), mail(version, **facts))


@pytest.mark.parametrize(
    ("pattern", "constraint", "version"),
    [
        ("*", "", "1.2.3"),
        ("acme.*", "", "1.2.3"),
        ("acme.send*", "^1.2", "1.2.3"),
        ("acme.send_email", "1.2.3", "1.2.3"),
        # Empty means any version, which includes prereleases; a range does not.
        ("*", "", "2.0.0-rc.1"),
        ("*", "2.0.0-rc.1", "2.0.0-rc.1"),
    ],
)
async def test_a_covered_call_goes_to_policy(engine: Engine, pattern: str, constraint: str, version: str) -> None:
    decision = await decide(engine, Grant(pattern, constraint), version=version)
    assert decision.verdict == ALLOWED
    assert [request.environment for request in engine.requests] == ["dev"]


@pytest.mark.parametrize(
    ("pattern", "constraint", "version"),
    [
        ("send_email", "", "1.2.3"),
        ("core.*", "", "1.2.3"),
        ("acme.send", "", "1.2.3"),
        ("acme.send_email", "^2", "1.2.3"),
        ("acme.send_email", "1.2.4", "1.2.3"),
        ("*", "^2", "2.0.0-rc.1"),
    ],
)
async def test_a_call_beyond_the_token_never_reaches_policy(
    engine: Engine, pattern: str, constraint: str, version: str
) -> None:
    decision = await decide(engine, Grant(pattern, constraint), version=version)
    assert decision.verdict.outcome == Deny(Reason.TOOL_NOT_IN_TOKEN)
    assert [(u.kind, u.value) for u in decision.verdict.suggested_updates] == [("tool", "acme.send_email")]
    assert decision.cacheable
    assert engine.requests == []


async def test_a_token_without_grants_covers_nothing(engine: Engine) -> None:
    assert (await decide(engine)).verdict.outcome == Deny(Reason.TOOL_NOT_IN_TOKEN)


async def test_one_covering_grant_among_others_is_enough(engine: Engine) -> None:
    assert (await decide(engine, Grant("acme.*", "^9"), Grant("echo"), Grant("acme.*", "1.x"))).verdict == ALLOWED


async def test_missing_scopes_are_named_each(engine: Engine) -> None:
    decision = await decide(engine, Grant("*"), required_scopes=frozenset({"z:z", "a:a", "mail:send"}))
    assert decision.verdict.outcome == Deny(Reason.SCOPE_MISSING)
    assert [(u.kind, u.value) for u in decision.verdict.suggested_updates] == [("scope", "a:a"), ("scope", "z:z")]
    assert decision.cacheable
    assert engine.requests == []


async def test_a_decision_is_named_dated_and_bound_to_the_policies(engine: Engine) -> None:
    first, second = await decide(engine, Grant("*")), await decide(engine, Grant("*"))
    assert first.name.startswith("decisions/")
    assert first.name != second.name
    assert (first.policy_set_version, first.decide_time) == ("sha256:1", NOW)
    assert first.expire_time == NOW + timedelta(seconds=60)


async def test_a_decision_never_outlives_the_token(engine: Engine) -> None:
    assert (await decide(engine, Grant("*"), ttl=3600)).expire_time == NOW + timedelta(seconds=300)


@pytest.mark.parametrize(
    ("outcome", "holds", "cacheable"),
    [
        (Allow(), True, True),
        (Allow(), False, False),
        (Deny(Reason.PERMISSION_DENIED), True, True),
        (Deny(Reason.PERMISSION_DENIED), False, False),
        (NeedsApproval(("approvers",), 1, "p"), True, False),
    ],
)
async def test_which_decisions_are_cacheable(engine: Engine, outcome: Any, holds: bool, cacheable: bool) -> None:
    engine.verdict = Verdict(outcome, ("because",), holds_for_any_arguments=holds)
    assert (await decide(engine, Grant("*"))).cacheable is cacheable


async def test_arguments_that_the_token_does_not_allow_are_refused_with_their_path(engine: Engine) -> None:
    caller = caller_with(Grant("*"), argument_constraints=(ArgumentConstraint("acme.*", b"{}"),))
    decision = await check_over(engine).decide(caller, mail(arguments=b'{"x": 1}'))
    assert (decision.verdict.outcome, decision.verdict.blocked_path) == (Deny(Reason.AUTHORITY_EXCEEDED), "/x")
    assert not decision.cacheable
    assert engine.requests == []


CONSTRAINED = {"argument_constraints": (ArgumentConstraint("acme.*", b"{}"),)}


@pytest.mark.parametrize("confinement", [CONSTRAINED, {"resources": ("file:*",)}])
async def test_a_token_with_bounds_needs_the_arguments(engine: Engine, confinement: Any) -> None:
    caller, journal = caller_with(Grant("*"), **confinement), FakeJournal()
    check = check_over(engine, journal=journal)
    decision = await check.decide(caller, mail(closed_world=True))
    assert (decision.verdict.outcome, decision.cacheable) == (Deny(Reason.PERMISSION_DENIED), False)
    assert [update.kind for update in decision.verdict.suggested_updates] == ["argument"]
    assert ([kept for kept, _, _ in journal.entries], engine.requests) == ([decision], [])
    # Before it is known what with, the question stays open: the call itself will be asked about.
    assert (await check.preview(caller, mail(closed_world=True))).verdict == ALLOWED


async def test_constraints_on_other_tools_ask_for_no_arguments(engine: Engine) -> None:
    caller = caller_with(Grant("*"), argument_constraints=(ArgumentConstraint("other.*", b"{}"),))
    assert (await check_over(engine).decide(caller, mail())).verdict == ALLOWED


@pytest.mark.parametrize("way", ["decide", "preview"])
async def test_a_bound_token_names_no_other_session(engine: Engine, way: str) -> None:
    decide = getattr(check_over(engine), way)
    bound = caller_with(Grant("*"), session_id="mine")
    refused = await decide(bound, mail(session_id="yours"))
    assert (refused.verdict.outcome, refused.verdict.blocked_path) == (Deny(Reason.AUTHORITY_EXCEEDED), "session_id")
    assert engine.requests == []
    for named, token in (("mine", bound), ("", bound), ("mine", caller_with(Grant("*")))):
        assert (await decide(token, mail(session_id=named))).verdict == ALLOWED
    # A call without a session belongs to the session of its token.
    assert [request.call.session_id for request in engine.requests] == ["mine"] * 3


@pytest.mark.parametrize(
    ("context_field", "field"), [(ContextField.ARGUMENTS, "arguments"), (ContextField.DIGEST, "arguments_digest")]
)
async def test_a_check_without_arguments_that_a_policy_reads_is_denied(
    engine: Engine, context_field: ContextField, field: str
) -> None:
    engine.fields, engine.verdict = frozenset({context_field}), replace(ALLOWED, holds_for_any_arguments=False)
    assert (await decide(engine, Grant("*"))).verdict.outcome == Deny(Reason.PERMISSION_DENIED)
    value = b"{}" if field == "arguments" else "sha256:0"
    assert (await decide(engine, Grant("*"), **{field: value})).verdict.outcome == Allow()  # type: ignore[arg-type]


async def test_labels_are_looked_up_only_if_a_policy_may_read_them(engine: Engine) -> None:
    check = check_over(engine, labels=FakeLabels({"confidential"}))
    await check.decide(caller_with(Grant("*")), mail())
    assert engine.requests[-1].labels is None
    engine.fields = frozenset({ContextField.LABELS})
    engine.verdict = replace(ALLOWED, holds_for_any_arguments=False)
    await check.decide(caller_with(Grant("*"), token_id="t2"), mail())
    assert engine.requests[-1].labels == {"confidential"}


async def test_an_allowed_call_adds_the_labels_of_the_tool_and_of_the_policies_once(engine: Engine) -> None:
    engine.verdict = replace(ALLOWED, labels=("secret",))
    labels = FakeLabels({"public"})
    check, call = check_over(engine, labels=labels), mail(result_labels=("confidential", "public"))
    first, second = await check.decide(caller_with(Grant("*")), call), await check.decide(caller_with(Grant("*")), call)
    assert (first.added_labels, first.cacheable) == (("confidential", "secret"), False)
    assert (second.added_labels, second.cacheable) == ((), True)
    assert labels.present == {"public", "confidential", "secret"}


@pytest.mark.parametrize(
    ("outcome", "added"),
    [
        (Deny(Reason.PERMISSION_DENIED), ()),
        # The approved call gets the same decision, so its labels must be there by then.
        (NeedsApproval(("approvers",), 1, "p"), ("confidential", "secret")),
    ],
)
async def test_a_call_that_may_run_adds_labels(engine: Engine, outcome: Any, added: tuple[str, ...]) -> None:
    engine.verdict = Verdict(outcome, ("because",), labels=("secret",))
    labels = FakeLabels()
    decision = await check_over(engine, labels=labels).decide(
        caller_with(Grant("*")), mail(result_labels=("confidential",))
    )
    assert (decision.added_labels, labels.present) == (added, set(added))


@pytest.mark.parametrize(
    ("outcome", "cleared"),
    [(Allow(), ("pii",)), (Deny(Reason.PERMISSION_DENIED), ()), (NeedsApproval(("approvers",), 1, "p"), ())],
)
async def test_an_allowed_call_removes_labels(engine: Engine, outcome: Any, cleared: tuple[str, ...]) -> None:
    engine.verdict = Verdict(outcome, ("because",), cleared_labels=("pii", "other"))
    labels = FakeLabels({"pii", "secret"})
    decision = await check_over(engine, labels=labels).decide(caller_with(Grant("*")), mail())
    assert (decision.cleared_labels, labels.present) == (cleared, {"pii", "secret"} - set(cleared))


async def test_a_labeled_decision_is_not_reused_where_a_label_may_be_removed_meanwhile(engine: Engine) -> None:
    engine.clears_labels = True
    check, call = check_over(engine, labels=FakeLabels({"confidential"})), mail(result_labels=("confidential",))
    assert not (await check.decide(caller_with(Grant("*")), call)).cacheable
    assert (await check.decide(caller_with(Grant("*")), mail())).cacheable


async def test_a_label_that_cannot_be_kept_means_no_answer(engine: Engine) -> None:
    class Gone(FakeLabels):
        async def add(self, request: Any, labels: Any, decision: str) -> tuple[str, ...]:
            raise MeshError(Reason.SERVICE_UNAVAILABLE)

    with pytest.raises(MeshError):
        await check_over(engine, labels=Gone()).decide(caller_with(Grant("*")), mail(result_labels=("confidential",)))


async def test_a_digest_that_a_policy_reads_must_be_sent(engine: Engine) -> None:
    engine.fields, engine.verdict = frozenset({ContextField.ARGUMENTS}), replace(ALLOWED, holds_for_any_arguments=False)
    check, caller = check_over(engine), caller_with(Grant("*"))
    assert (await check.decide(caller, mail(arguments=b"{}"))).verdict.outcome == Allow()
    untold = await check.decide(caller, mail())
    assert (untold.verdict.outcome, untold.cacheable) == (Deny(Reason.PERMISSION_DENIED), False)


async def test_each_decision_has_a_name_of_its_own_and_is_made_by_the_set_that_is_active(engine: Engine) -> None:
    check, caller = check_over(engine), caller_with(Grant("*"))
    assert len({(await check.decide(caller, mail())).name for _ in range(2)}) == 2
    other = Engine(Verdict(Deny(Reason.PERMISSION_DENIED), ("no",)), version="sha256:2")
    assert isinstance(check.engines, FixedProvider)
    check.engines.current = other
    assert (await check.decide(caller, mail())).verdict == other.verdict


async def test_a_decision_that_depends_on_the_context_is_not_cacheable(engine: Engine) -> None:
    engine.fields, engine.verdict = frozenset({ContextField.TIME}), replace(ALLOWED, holds_for_any_arguments=False)
    check = check_over(engine)
    for _ in range(2):
        assert not (await check.decide(caller_with(Grant("*")), mail())).cacheable
    assert len(engine.requests) == 2


async def test_every_decision_is_recorded_with_its_question_and_a_preview_is_not(engine: Engine) -> None:
    journal = FakeJournal()
    check = check_over(engine, journal=journal)
    asked = [await check.decide(caller_with(Grant("*")), mail()), await check.decide(caller_with(), mail())]
    assert [decision for decision, _, _ in journal.entries] == asked
    assert [context_fields for _, _, context_fields in journal.entries] == [frozenset(), None]
    labels = FakeLabels()
    preview = await check_over(engine, journal=journal, labels=labels).preview(
        caller_with(Grant("*")), mail(result_labels=("x",))
    )
    assert preview.verdict == ALLOWED
    assert (len(journal.entries), labels.present) == (2, set())


async def test_questions_about_others_need_a_scope_and_are_never_reused(engine: Engine) -> None:
    subject = SubjectFacts("did:web:s", "service", tenant="acme", trust_level=9, groups=("g",))
    with pytest.raises(MeshError) as caught:
        await check_over(engine).decide_for_subject(caller_with(), subject, mail())
    assert caught.value.reason is Reason.SCOPE_MISSING
    asker = caller_with(scopes=frozenset({"authz:evaluate"}))
    decision = await check_over(engine).decide_for_subject(asker, subject, mail())
    assert (decision.verdict, decision.cacheable) == (ALLOWED, False)
    asked = engine.requests[-1].caller
    assert (asked.subject, asked.tier, asked.tenant, asked.trust_level, asked.groups) == (
        "did:web:s",
        "service",
        "acme",
        9,
        ("g",),
    )


@pytest.mark.parametrize(("kind", "behalf"), [("agent", "did:web:a"), ("user", "did:web:s"), ("service", "did:web:s")])
async def test_only_an_agent_subject_acts_for_another(engine: Engine, kind: str, behalf: str) -> None:
    asker = caller_with(scopes=frozenset({"authz:evaluate"}))
    await check_over(engine).decide_for_subject(
        asker, SubjectFacts("did:web:s", kind, on_behalf_of="did:web:a"), mail()
    )
    asked = engine.requests[-1].caller
    assert (asked.kind, asked.actor, asked.subject) == (kind, "did:web:s", behalf)


async def test_obligations_reach_the_decision(engine: Engine) -> None:
    engine.verdict = replace(ALLOWED, obligations=(Obligation("cap_rows", ("10",)),))
    assert (await decide(engine, Grant("*"))).verdict.obligations == (Obligation("cap_rows", ("10",)),)


async def test_a_set_that_becomes_active_meanwhile_has_no_part_in_the_decision(engine: Engine) -> None:
    other = Engine(Verdict(Deny(Reason.PERMISSION_DENIED), ("no",)), version="sha256:2")
    engine.fields, engine.verdict = frozenset({ContextField.LABELS}), replace(ALLOWED, holds_for_any_arguments=False)

    class Swapping(FakeLabels):
        """FakeLabels whose reading takes so long that another set is active when it ends."""

        async def find(self, request: Any) -> FoundLabels:
            check.engines.current = other  # type: ignore[misc]
            return FoundLabels(frozenset(), frozenset())

    check = check_over(engine, labels=Swapping())
    decision = await check.decide(caller_with(Grant("*")), mail())
    assert (decision.verdict, decision.policy_set_version) == (engine.verdict, "sha256:1")
    assert other.requests == []
    assert (await check.decide(caller_with(Grant("*")), mail())).policy_set_version == "sha256:2"


async def test_a_refusal_of_the_executor_is_a_decision_that_policy_is_not_asked_about(engine: Engine) -> None:
    journal = FakeJournal()
    check = check_over(engine, journal=journal)
    refusal = Refusal(Deny(Reason.AUTHORITY_EXCEEDED), ("too far",), "/to", "decisions/1")
    decision = check.record_refusal(caller_with(Grant("*")), mail(), refusal)
    assert (decision.verdict.outcome, decision.verdict.reasons) == (refusal.outcome, ("too far",))
    assert (decision.verdict.blocked_path, decision.by_executor, decision.follows) == ("/to", True, "decisions/1")
    assert (decision.cacheable, engine.requests) == (False, [])
    assert journal.entries[-1][0] == decision
