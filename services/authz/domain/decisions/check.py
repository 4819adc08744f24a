"""Check: decides about one call, first by the token and then by policy."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from libs.common.auth.coverage import (
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
from libs.common.tool_names import grant_names
from services.authz.domain.decisions.limits import (
    MAX_VALUES,
    UncountableArgumentError,
    depends_on_arguments,
    limits_for,
    price_of,
)
from services.authz.domain.errors import evaluate_scope_missing, other_tenant
from services.authz.domain.model import (
    Allow,
    CallFacts,
    ContextField,
    Decision,
    DecisionRequest,
    Deny,
    Limit,
    NeedsApproval,
    Refusal,
    SubjectFacts,
    SuggestedUpdate,
    Verdict,
)
from services.authz.domain.ports import EngineProvider, Evaluation, Journal, PolicyEngine, SessionLabels

# The scope for decisions about other subjects.
EVALUATE_SCOPE = "authz:evaluate"
# Arguments that are checked against the constraints of a token on the event loop: those may take many steps for each
# byte.
INLINE_BYTES = 4 * 1024


@dataclass(frozen=True)
class Check:
    """Decides about calls in one environment. Each decision is made by one policy set."""

    engines: EngineProvider
    labels: SessionLabels
    journal: Journal
    satisfies: Satisfies
    clock: Clock
    environment: str
    ttl: timedelta

    async def decide(self, caller: Identity, call: CallFacts, engine: PolicyEngine | None = None) -> Decision:
        """Return the decision, by the active policy set unless an engine is given.

        Policy is evaluated only for calls that the token covers, so it cannot widen a token. Labels that a call adds to
        its session are stored durably before this returns.
        """
        engine, request = engine or self.engines.current, self._request(caller, call)
        refused = await self._refused_by_token(caller, call) or _refused_without_arguments(caller, call)
        if refused is not None:
            decision = self._decision(refused, request, engine.version)
            self.journal.record(decision, request, None)
            return decision
        request, verdict, context_fields = await self._evaluate(engine, request)
        verdict, limits, cost = _limited(engine, verdict, request)
        decision = self._decision(verdict, request, engine.version, limits=limits, cost=cost)
        decision = await self._change_labels(engine, request, decision)
        self.journal.record(decision, request, context_fields)
        return decision

    def record_refusal(self, caller: Identity, call: CallFacts, refusal: Refusal) -> Decision:
        """Return a decision of its own for a call that the executor refuses, and record it. It is never reused."""
        request = self._request(caller, call)
        verdict = Verdict(
            refusal.outcome, refusal.reasons, holds_for_any_arguments=False, blocked_path=refusal.blocked_path
        )
        decision = self._decision(verdict, request, self.engines.current.version)
        decision = replace(decision, by_executor=True, follows=refusal.follows)
        self.journal.record(decision, request, None)
        return decision

    async def preview(self, caller: Identity, call: CallFacts, engine: PolicyEngine | None = None) -> Decision:
        """Return the decision without side effects: no label is added and nothing is recorded. Without arguments, the
        token's bounds on arguments are not checked, because the arguments are not known yet."""
        engine, request = engine or self.engines.current, self._request(caller, call)
        verdict = await self._refused_by_token(caller, call)
        if verdict is None:
            _, verdict, _ = await self._evaluate(engine, request)
        return self._decision(verdict, request, engine.version)

    async def decide_for_subject(self, asker: Identity, subject: SubjectFacts, call: CallFacts) -> Decision:
        """Return the decision of policy for another subject, whose token is unknown. It is never used for a call.

        Raises SCOPE_MISSING without the scope for this, and AUTHORITY_EXCEEDED for a subject of another tenant than the
        asker's; a subject without a tenant is taken to be of the asker's.
        """
        if EVALUATE_SCOPE not in asker.scopes:
            raise evaluate_scope_missing(EVALUATE_SCOPE)
        if asker.tenant:
            if subject.tenant not in ("", asker.tenant):
                raise other_tenant()
            subject = dataclasses.replace(subject, tenant=asker.tenant)
        engine, request = self.engines.current, self._request(identity_of(subject, asker.expires_at), call)
        request = replace(request, granted_by_name=True)
        request, verdict, context_fields = await self._evaluate(engine, request)
        decision = replace(self._decision(verdict, request, engine.version), cacheable=False)
        self.journal.record(decision, request, context_fields)
        return decision

    async def _refused_by_token(self, caller: Identity, call: CallFacts) -> Verdict | None:
        """Return why the token does not cover the call. Large arguments are checked beside the event loop."""
        if _confined(caller) and len(call.arguments) > INLINE_BYTES:
            return await asyncio.to_thread(_refused_by_token, caller, call, self.satisfies)
        return _refused_by_token(caller, call, self.satisfies)

    def _request(self, caller: Identity, call: CallFacts) -> DecisionRequest:
        if caller.session_id and not call.session_id:
            # A call without a session belongs to the session of its token.
            call = replace(call, session_id=caller.session_id)
        named = any(grant_names(grant.tool, call.tool) for grant in caller.tools)
        return DecisionRequest(caller, call, self.environment, self.clock.now(), granted_by_name=named)

    async def _evaluate(
        self, engine: PolicyEngine, request: DecisionRequest
    ) -> tuple[DecisionRequest, Verdict, frozenset[ContextField]]:
        """Return the request with its labels, the verdict, and the context fields that the verdict may depend on."""
        evaluation = engine.evaluate(request)
        if ContextField.LABELS in evaluation.context_fields:
            found = await self.labels.find(request)
            request = replace(request, labels=found.session, token_labels=found.token)
        return request, verdict_of(evaluation, request), evaluation.context_fields

    async def _change_labels(self, engine: PolicyEngine, request: DecisionRequest, decision: Decision) -> Decision:
        """Store what a call that may run changes of the labels of its session, and return the decision with it.

        A call that waits for a person adds its labels too: the answer after the approval is the same decision. A
        reused decision must not report labels as new again, and would not add a label again that was removed meanwhile.
        """
        verdict = decision.verdict
        labels = request.call.result_labels + verdict.labels
        if isinstance(verdict.outcome, Deny) or not (labels or verdict.cleared_labels):
            return decision
        cleared: tuple[str, ...] = ()
        added: tuple[str, ...] = ()
        if verdict.cleared_labels and isinstance(verdict.outcome, Allow):
            cleared = await self.labels.clear(request, set(verdict.cleared_labels), decision.name)
        if labels:
            added = await self.labels.add(request, set(labels), decision.name)
        cacheable = decision.cacheable and not added and not engine.clears_labels
        return replace(decision, added_labels=added, cleared_labels=cleared, cacheable=cacheable)

    def _decision(
        self,
        verdict: Verdict,
        request: DecisionRequest,
        version: str,
        *,
        limits: tuple[Limit, ...] = (),
        cost: int = 0,
    ) -> Decision:
        now = request.time
        needs_approval = isinstance(verdict.outcome, NeedsApproval)
        return Decision(
            name=f"decisions/{new_id()}",
            verdict=verdict,
            policy_set_version=version,
            cacheable=verdict.holds_for_any_arguments and not needs_approval,
            decide_time=now,
            expire_time=min(now + self.ttl, datetime.fromtimestamp(request.caller.expires_at, UTC)),
            limits=limits,
            cost_micros=cost,
        )


def verdict_of(evaluation: Evaluation, request: DecisionRequest) -> Verdict:
    """Return the verdict for a request with its labels. The call is denied if a policy reads arguments that were not
    sent."""
    verdict = evaluation.verdict(request)
    if _lacks_arguments(request.call, evaluation.context_fields) and not isinstance(verdict.outcome, Deny):
        return _arguments_missing("A policy reads the arguments of this call, and they were not sent.")
    return verdict


def _limited(
    engine: PolicyEngine, verdict: Verdict, request: DecisionRequest
) -> tuple[Verdict, tuple[Limit, ...], int]:
    """Return the verdict with the limits and the price of the call. A call that cannot be counted is denied, and a
    verdict whose limits depend on the arguments holds for these alone."""
    caller, call = request.caller, request.call
    if isinstance(verdict.outcome, Deny):
        return verdict, (), 0
    try:
        limits = limits_for(engine.limits, caller, call)
    except UncountableArgumentError as error:
        return _uncountable(error), (), 0
    if verdict.holds_for_any_arguments and depends_on_arguments(engine.limits, caller, call):
        verdict = dataclasses.replace(verdict, holds_for_any_arguments=False)
    return verdict, limits, price_of(engine.limits, call)


def _uncountable(error: UncountableArgumentError) -> Verdict:
    reason = (
        f"The limit {error.rule} counts by the argument {error.pointer}, which must be there and have at most"
        f" {MAX_VALUES} values."
    )
    return Verdict(
        Deny(Reason.PERMISSION_DENIED),
        reasons=(reason,),
        suggested_updates=(SuggestedUpdate("argument", error.pointer),),
        holds_for_any_arguments=False,
        blocked_path=error.pointer,
    )


def _refused_by_token(caller: Identity, call: CallFacts, satisfies: Satisfies) -> Verdict | None:
    if outside_session(caller, call.session_id):
        return _session_mismatch()
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
        return _scopes_missing(sorted(missing))
    return None


def _scopes_missing(missing: list[str]) -> Verdict:
    return Verdict(
        Deny(Reason.SCOPE_MISSING),
        reasons=(f"The tool requires scopes that the token does not hold: {', '.join(missing)}.",),
        suggested_updates=tuple(SuggestedUpdate("scope", scope) for scope in missing),
    )


def _session_mismatch() -> Verdict:
    return Verdict(Deny(Reason.AUTHORITY_EXCEEDED), reasons=(OTHER_SESSION,), blocked_path=SESSION)


def _refused_without_arguments(caller: Identity, call: CallFacts) -> Verdict | None:
    """Refuse a call whose token bounds arguments if the arguments were not sent."""
    if call.arguments or not bounds_arguments(caller, call.tool):
        return None
    return _arguments_missing("The token bounds the arguments of this call, and they were not sent.")


def _confined(caller: Identity) -> bool:
    return bool(caller.resources or caller.argument_constraints)


def _lacks_arguments(call: CallFacts, context_fields: frozenset[ContextField]) -> bool:
    arguments = ContextField.ARGUMENTS in context_fields and not call.arguments
    return arguments or (ContextField.DIGEST in context_fields and not call.arguments_digest)


def _arguments_missing(reason: str) -> Verdict:
    return Verdict(
        Deny(Reason.PERMISSION_DENIED),
        reasons=(reason,),
        suggested_updates=(SuggestedUpdate("argument", "send the arguments"),),
        holds_for_any_arguments=False,
    )


def identity_of(subject: SubjectFacts, expires_at: float) -> Identity:
    """Return the identity of a subject without a token. Only an agent acts for another subject."""
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
