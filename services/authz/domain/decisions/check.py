"""Check: decides about one call. First what the token covers, then what policy says about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from libs.common.auth.authority import (
    OTHER_SESSION,
    SESSION,
    Satisfies,
    bounds_arguments,
    not_covered,
    outside_session,
)
from libs.common.auth.identity import Identity
from libs.common.errors import Reason
from libs.common.ids import new_id
from libs.common.json.jsonio import parse_object
from libs.common.runtime.clock import Clock
from services.authz.domain.decisions.limits import limits_for, price_of
from services.authz.domain.errors import may_not_ask_about_others
from services.authz.domain.model import (
    Allow,
    CallFacts,
    Decision,
    Deny,
    Fact,
    Limit,
    NeedsApproval,
    Question,
    SubjectFacts,
    SuggestedUpdate,
    Verdict,
)
from services.authz.domain.ports import Consideration, Engines, Journal, PolicyEngine, SessionLabels

# Who holds it may ask what policy says about others.
EVALUATE = "authz:evaluate"


@dataclass(frozen=True)
class Check:
    """Decides about calls in one environment. Each decision is made by one set of policies as a whole."""

    engines: Engines
    labels: SessionLabels
    journal: Journal
    satisfies: Satisfies
    clock: Clock
    environment: str
    ttl: timedelta

    async def __call__(self, caller: Identity, call: CallFacts, engine: PolicyEngine | None = None) -> Decision:
        """Return the decision, by the present policies unless others are named. Policy is only asked about what the token covers, so
        it can never widen a token; labels that an allowed call adds to its session are durable before it is allowed."""
        engine, question = engine or self.engines.current, self._question(caller, call)
        refused = _refused_by_token(caller, call, self.satisfies) or _refused_unheard(caller, call)
        if refused is not None:
            decision = self._dated(refused, question, engine.version)
            self.journal.record(decision, question, None)
            return decision
        question, verdict, reads = await self._judged(engine, question)
        added = await self._added(question, verdict)
        limits: tuple[Limit, ...] = ()
        cost = 0
        if not isinstance(verdict.outcome, Deny):
            limits, cost = limits_for(engine.limits, caller, call), price_of(engine.limits, call)
        decision = self._dated(verdict, question, engine.version, limits=limits, cost=cost, added=added)
        self.journal.record(decision, question, reads)
        return decision

    async def preview(self, caller: Identity, call: CallFacts, engine: PolicyEngine | None = None) -> Decision:
        """Return what would be decided, without a trace: no label is added, and nothing is recorded. While no arguments are told, what the
        token says of them is left open: it is asked before they are known."""
        engine, question = engine or self.engines.current, self._question(caller, call)
        verdict = _refused_by_token(caller, call, self.satisfies)
        if verdict is None:
            _, verdict, _ = await self._judged(engine, question)
        return self._dated(verdict, question, engine.version)

    async def about(self, asker: Identity, subject: SubjectFacts, call: CallFacts) -> Decision:
        """Return what policy says about somebody else, whose token is not known. Raises SCOPE_MISSING for whoever may not
        ask. Such an answer is never used for a call."""
        if EVALUATE not in asker.scopes:
            raise may_not_ask_about_others(EVALUATE)
        engine, question = self.engines.current, self._question(_identity(subject, asker.expires_at), call)
        question, verdict, reads = await self._judged(engine, question)
        decision = replace(self._dated(verdict, question, engine.version), cacheable=False)
        self.journal.record(decision, question, reads)
        return decision

    def _question(self, caller: Identity, call: CallFacts) -> Question:
        if caller.session_id and not call.session_id:
            # What names no session belongs to the one that the token is bound to.
            call = replace(call, session_id=caller.session_id)
        return Question(caller, call, self.environment, self.clock.now())

    async def _judged(self, engine: PolicyEngine, question: Question) -> tuple[Question, Verdict, frozenset[Fact]]:
        """Return the question as it was put, the verdict, and the facts of this one call that it may rest on."""
        considered = engine.consider(question)
        if Fact.LABELS in considered.reads:
            question = replace(question, labels=await self.labels.of(question))
        return question, verdict_of(considered, question), considered.reads

    async def _added(self, question: Question, verdict: Verdict) -> tuple[str, ...]:
        carried = question.call.result_labels + verdict.labels
        if not carried or not isinstance(verdict.outcome, Allow):
            return ()
        return await self.labels.add(question, set(carried))

    def _dated(
        self,
        verdict: Verdict,
        question: Question,
        version: str,
        *,
        limits: tuple[Limit, ...] = (),
        cost: int = 0,
        added: tuple[str, ...] = (),
    ) -> Decision:
        now = question.moment
        asks_a_person = isinstance(verdict.outcome, NeedsApproval)
        return Decision(
            name=f"decisions/{new_id()}",
            verdict=verdict,
            policy_set_version=version,
            # Whoever reuses the answer later must not be told that the session is as it was before labels were added.
            cacheable=verdict.holds_for_any_arguments and not asks_a_person and not added,
            decide_time=now,
            expire_time=min(now + self.ttl, datetime.fromtimestamp(question.caller.expires_at, UTC)),
            limits=limits,
            cost_micros=cost,
            added_labels=added,
        )


def verdict_of(considered: Consideration, question: Question) -> Verdict:
    """Return what policy says to a question whose labels were looked up. What a policy would have to read and nobody told is denied."""
    verdict = considered.verdict(question.labels)
    if _untold(question.call, considered.reads) and not isinstance(verdict.outcome, Deny):
        return _not_told("A policy reads the arguments of this call, and they were not told.")
    return verdict


def _refused_by_token(caller: Identity, call: CallFacts, satisfies: Satisfies) -> Verdict | None:
    if outside_session(caller, call.session_id):
        return _of_another_session()
    arguments = parse_object(call.arguments) if _confined(caller) and call.arguments else None
    refusal = not_covered(
        caller,
        call.tool,
        call.version,
        arguments=arguments,
        resources=call.resources,
        closed_world=call.closed_world,
        satisfies=satisfies,
    )
    if refusal is not None:
        granted = refusal.reason is not Reason.TOOL_NOT_IN_TOKEN
        return Verdict(
            Deny(refusal.reason),
            reasons=(refusal.message,),
            suggested_updates=() if granted else (SuggestedUpdate("tool", call.tool.qualified),),
            holds_for_any_arguments=not granted,
            blocked_path=refusal.path,
        )
    if missing := call.required_scopes - caller.scopes:
        return _without_scopes(sorted(missing))
    return None


def _without_scopes(missing: list[str]) -> Verdict:
    return Verdict(
        Deny(Reason.SCOPE_MISSING),
        reasons=(f"The tool requires scopes that the token does not hold: {', '.join(missing)}.",),
        suggested_updates=tuple(SuggestedUpdate("scope", scope) for scope in missing),
    )


def _of_another_session() -> Verdict:
    return Verdict(Deny(Reason.AUTHORITY_EXCEEDED), reasons=(OTHER_SESSION,), blocked_path=SESSION)


def _refused_unheard(caller: Identity, call: CallFacts) -> Verdict | None:
    """Refuse a call of which it is not told whether it keeps to what the token allows."""
    if call.arguments or not bounds_arguments(caller, call.tool):
        return None
    return _not_told("The token bounds the arguments of this call, and they were not told.")


def _confined(caller: Identity) -> bool:
    return bool(caller.resources or caller.argument_constraints)


def _untold(call: CallFacts, reads: frozenset[Fact]) -> bool:
    arguments = Fact.ARGUMENTS in reads and not call.arguments
    return arguments or (Fact.DIGEST in reads and not call.arguments_digest)


def _not_told(reason: str) -> Verdict:
    return Verdict(
        Deny(Reason.PERMISSION_DENIED),
        reasons=(reason,),
        suggested_updates=(SuggestedUpdate("argument", "tell the arguments"),),
        holds_for_any_arguments=False,
    )


def _identity(subject: SubjectFacts, expires_at: float) -> Identity:
    """Somebody as policy sees them: without a token, so with nothing that it would cover. Only an agent acts for somebody else."""
    acts_for_another = subject.kind == "agent" and subject.on_behalf_of
    return Identity(
        subject=subject.on_behalf_of if acts_for_another else subject.subject,
        token_id="",
        expires_at=expires_at,
        tier=subject.kind,
        agent=subject.subject if subject.kind == "agent" else "",
        tenant=subject.tenant,
        scopes=subject.scopes,
        groups=subject.groups,
        trust_level=subject.trust_level,
    )
