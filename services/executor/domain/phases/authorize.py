"""Asks hooks and policy about a call. Anything but an allow ends the call, on record."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from libs.common.auth.coverage import Refusal, Satisfies, not_covered
from libs.common.auth.identity import Identity
from libs.common.errors import MeshError, Reason
from libs.common.redaction.scanner import Scanner
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock
from libs.common.semver import Version
from libs.common.tool_names import split_version_name
from services.executor.domain import errors
from services.executor.domain.approvals.gate import ApprovalGate, with_required_approval
from services.executor.domain.arguments.prepare import PreparedArguments, call_input, recheck
from services.executor.domain.audit_records import decision_record
from services.executor.domain.deadlines import blame_deadline, time_left
from services.executor.domain.hooks.hooks import NOTHING, Verdicts
from services.executor.domain.hooks.invocation_hooks import InvocationHooks
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Caller, Decision, Question, Record, Verdict
from services.executor.domain.phases.call_fingerprint import call_fingerprint
from services.executor.domain.phases.preflight import DescribedArguments, describe_arguments
from services.executor.domain.ports import AuditTrail, Authorizer, PreviewTokens, ToolView
from services.executor.domain.results.obligations import demands_preview, unmet_kinds, with_required_preview
from services.executor.domain.results.repeated_values import hide_in_error
from services.executor.domain.scheduling.offload import Offload
from services.executor.domain.states import State
from services.executor.domain.tool import Tool
from services.executor.domain.validation_cost import is_light

_STATES_WITHOUT_APPROVAL = {
    Reason.APPROVAL_REQUIRED: State.AWAITING_APPROVAL,
    Reason.SERVICE_UNAVAILABLE: State.BLOCKED,
}


class Authorization:
    """The authorize phase of calls and previews, and the record of its decision."""

    def __init__(
        self,
        *,
        tools: ToolView,
        authorizer: Authorizer,
        audit: AuditTrail,
        previews: PreviewTokens,
        hooks: InvocationHooks,
        scanners: TenantScanners,
        satisfies: Satisfies,
        gate: ApprovalGate,
        offload: Offload,
        clock: Clock,
        audit_wait: float,
    ) -> None:
        self._tools, self._authorizer, self._audit, self._previews = tools, authorizer, audit, previews
        self._hooks, self._scanners, self._satisfies, self._gate = hooks, scanners, satisfies, gate
        self._offload, self._clock, self._audit_wait = offload, clock, audit_wait

    async def authorize(self, invocation: Invocation, tool: Tool) -> None:
        """Return if hooks and policy allow the call; otherwise record the refusal and raise it.

        A call that names another session than its token is refused before hooks and policy are asked.
        """
        if invocation.request.caller.other_session:
            raise await self._refuse_unasked(invocation, tool, errors.other_session())
        hooked = await self._ask_hooks(invocation, tool) if self._hooks.active else NOTHING
        question = invocation.question = _question_about(invocation, hooked.risk)
        decision = await self._decide(invocation, tool, question, hooked.asks_approval)
        if decision.verdict is Verdict.NEEDS_APPROVAL and invocation.request.ticket and not invocation.preview:
            await self._check_ticket(invocation, tool, decision)
        refused = await self._offload.run(invocation, partial(self._refusal, invocation, tool, decision))
        if refused is not None:
            decision = await self._refuse(invocation, tool, question, decision, *refused)
            raise await self._record_refusal(invocation, tool, decision, *refused)
        invocation.enter(State.APPROVED)
        spec = tool.argument_spec
        if spec is not None and (spec.fills or spec.call):
            await self._offload.run(invocation, partial(_fill_internal_arguments, invocation, tool))

    async def record_decision(self, invocation: Invocation) -> None:
        """Return once the decision is durable. Nothing runs before."""
        record = decision_record(invocation)
        invocation.decision_record = record.record_id
        invocation.evidence.append(f"records/{record.record_id}")
        await self._append(record, invocation.deadline.run_until)

    async def recheck_after_wait(self, invocation: Invocation, tool: Tool) -> None:
        """Return if a call that waited for its slot may still run.

        Meanwhile the tool may be quarantined, removed, trusted less or unable to work, and the policies replaced. A new
        decision is recorded.
        """
        if invocation.state is not State.QUEUED:
            return
        current = self._tools.resolve(tool.qualified, tool.version)
        decision = invocation.decision
        differs = (current.trust, current.health) != (tool.trust, tool.health)
        if decision is not None and (differs or self._authorizer.outdated(decision)):
            await self._decide_again(invocation, current)
            await self.record_decision(invocation)

    async def decide_again(self, invocation: Invocation, tool: Tool) -> None:
        """Return if a call that waited for another call with its key may still run, or get that call's outcome.

        Policy is asked again. A decision that differs is recorded.
        """
        self._tools.resolve(tool.qualified, tool.version)
        former = invocation.decision
        await self._decide_again(invocation, tool)
        decision = invocation.decision
        if former is None or decision is None:
            return
        if replace(decision, name=former.name, expires_at=former.expires_at) != former:
            await self.record_decision(invocation)

    async def _decide_again(self, invocation: Invocation, tool: Tool) -> None:
        question = invocation.question
        if question is None:
            return
        decision = await self._decide(invocation, tool, question)
        refused = await self._offload.run(invocation, partial(self._refusal, invocation, tool, decision))
        if refused is not None:
            await self._refuse(invocation, tool, question, decision, *refused)
            raise refused[0]

    async def _decide(
        self, invocation: Invocation, tool: Tool, question: Question, asks_approval: str = ""
    ) -> Decision:
        """Return the decision of policy, or one of its own where the mesh or a hook requires approval on top of it."""
        caller = invocation.request.caller
        policy = await self._authorizer.decide(tool, caller, question)
        decision = _with_requirements(policy, tool)
        if asks_approval and decision.verdict is Verdict.ALLOW:
            decision = _needs_approval(decision, asks_approval)
        if decision.verdict is not policy.verdict:
            decision = await self._authorizer.refuse(tool, caller, question, replace(decision, policies=()))
        invocation.decision = decision
        return decision

    async def _refuse(
        self,
        invocation: Invocation,
        tool: Tool,
        question: Question,
        decision: Decision,
        refusal: MeshError,
        state: State,
    ) -> Decision:
        """Return the decision of a refused call, which says the same as its answer and belongs to this call alone.

        A decision of policy may have been made for another call, or may have allowed this one.
        """
        verdict = Verdict.NEEDS_APPROVAL if state is State.AWAITING_APPROVAL else Verdict.DENY
        if decision.verdict is verdict and decision.made_for == invocation.invocation_id:
            return decision
        if decision.verdict is not verdict:
            hide_in_error(refusal, invocation.scanner)
            path = refusal.violations[0].path if refusal.violations else ""
            decision = replace(
                decision,
                verdict=verdict,
                deny_reason=refusal.reason,
                reasons=(refusal.message,),
                policies=(),
                blocked_path=path,
            )
        decision = await self._authorizer.refuse(tool, invocation.request.caller, question, decision)
        invocation.decision = decision
        if decision.name:
            refusal.metadata["decision"] = decision.name
        return decision

    async def _refuse_unasked(self, invocation: Invocation, tool: Tool, refusal: MeshError) -> MeshError:
        """Return the refusal of a call that policy is not asked about, with its decision."""
        question = _question_about(invocation)
        await self._refuse(invocation, tool, question, Decision("", Verdict.ALLOW), refusal, State.DENIED)
        return refusal

    async def _append(self, record: Record, until: float) -> None:
        """Return once the record is durable. Raises DEADLINE_EXCEEDED when the caller's time is over before."""
        try:
            await self._audit.append(record, within=time_left(until, self._clock, self._audit_wait))
        except MeshError as unrecorded:
            raise blame_deadline(unrecorded, until, self._clock) from None

    async def _ask_hooks(self, invocation: Invocation, tool: Tool) -> Verdicts:
        """Return what the hooks answer. Arguments that they changed are checked against the schema again."""
        try:
            verdicts = await self._hooks.before(invocation, tool)
        except MeshError as error:
            if error.reason is Reason.HOOK_BLOCKED:
                raise await self._refuse_unasked(invocation, tool, error) from None
            raise
        if verdicts.arguments is not None:
            scanner = self._scanners.of(invocation.request.caller.tenant)
            invocation.small = is_light(invocation.arguments)
            refusal, described = await self._offload.run(
                invocation, partial(_recheck, tool, invocation.arguments, scanner)
            )
            invocation.payload, invocation.scanner, invocation.resources = described
            if refusal is not None:
                raise refusal
        return verdicts

    async def _check_ticket(self, invocation: Invocation, tool: Tool, decision: Decision) -> None:
        """Return if the ticket of the call could be redeemed now; otherwise record why not, and raise it."""
        invocation.ticket = invocation.request.ticket
        try:
            invocation.approval = await self._gate.check(invocation, tool, decision)
        except MeshError as error:
            if error.reason is Reason.DEADLINE_EXCEEDED:
                raise
            error.metadata["decision"] = decision.name
            state = _STATES_WITHOUT_APPROVAL.get(error.reason, State.DENIED)
            raise await self._record_refusal(invocation, tool, decision, error, state) from None
        invocation.enter(State.AWAITING_APPROVAL)

    async def _record_refusal(
        self, invocation: Invocation, tool: Tool, decision: Decision, refusal: MeshError, state: State
    ) -> MeshError:
        if state is State.AWAITING_APPROVAL and not invocation.ticket:
            refusal, state = await self._request_approval(invocation, tool, decision, refusal)
        waits = state is State.AWAITING_APPROVAL and invocation.awaited_ticket is not None
        if self._hooks.active and not waits:
            await self._hooks.after_failure(invocation, refusal)
        if invocation.state is not state:
            invocation.enter(state)
        if not waits:
            invocation.reason, invocation.closed = refusal.reason, True
        record = decision_record(invocation, None if waits else refusal)
        invocation.decision_record = record.record_id
        await self._append(record, invocation.deadline.answer_by)
        refusal.evidence = (f"records/{record.record_id}",)
        return refusal

    async def _request_approval(
        self, invocation: Invocation, tool: Tool, decision: Decision, required: MeshError
    ) -> tuple[MeshError, State]:
        """Return how a call that needs approval ends: with its ticket, unless a hook stops it or none can be made."""
        state = State.AWAITING_APPROVAL
        if self._hooks.active:
            required, state = await self._ask_approval_hooks(invocation, tool, decision, required)
        if state is not State.AWAITING_APPROVAL:
            return required, state
        try:
            if invocation.awaited_ticket is not None and (name := await invocation.awaited_ticket(tool.qualified)):
                # The call was started before: its job has the ticket, so no one is asked again.
                invocation.ticket = name
                return required, state
            ticket = await self._gate.request(invocation, tool, decision)
        except MeshError as error:
            # Fails closed: without a ticket no one can approve the call.
            error.metadata["decision"] = decision.name
            return error, State.BLOCKED
        invocation.ticket = ticket.name
        return errors.approval_requested(decision, ticket.name, ticket.state, ticket.expires), state

    async def _ask_approval_hooks(
        self, invocation: Invocation, tool: Tool, decision: Decision, required: MeshError
    ) -> tuple[MeshError, State]:
        """Return how a call that needs approval ends: with APPROVAL_REQUIRED, unless a hook rejects or blocks it."""
        stopped = await self._hooks.at_approval(invocation, tool, decision)
        if stopped is None:
            return required, State.AWAITING_APPROVAL
        stopped.metadata["decision"] = decision.name
        invocation.enter(State.AWAITING_APPROVAL)
        return stopped, State.DENIED if stopped.reason is Reason.APPROVAL_REJECTED else State.BLOCKED

    def _refusal(self, invocation: Invocation, tool: Tool, decision: Decision) -> tuple[MeshError, State] | None:
        caller, arguments = invocation.request.caller, invocation.arguments
        if decision.verdict is Verdict.NEEDS_APPROVAL and (invocation.preview or invocation.approval is not None):
            # A preview has no effect and returns no result, so it needs no approval. A call with an approved ticket
            # redeems it just before its run. The token's limits still hold.
            decision = replace(decision, verdict=Verdict.ALLOW)
        resources = invocation.resources
        refused = find_refusal(decision, tool, caller, arguments, resources, self._satisfies, invocation.sandbox)
        # The approver saw the preview of the ticket, which is one of this very call.
        previewed = invocation.preview or (invocation.approval is not None and invocation.approval.previewed)
        if refused is None and decision.obligations and not previewed and demands_preview(decision):
            token = invocation.request.preview_token
            if not (token and self._previews.accepts(token, call_fingerprint(caller, tool, arguments))):
                return errors.preview_required(decision, tool.name), State.DENIED
        return refused


def _question_about(invocation: Invocation, risk: tuple[tuple[str, int], ...] = ()) -> Question:
    digest = invocation.payload.digest if invocation.payload else ""
    return Question(invocation.invocation_id, invocation.arguments, digest, risk, invocation.resources)


def _with_requirements(decision: Decision, tool: Tool) -> Decision:
    """Return the decision with what the mesh itself requires of the tool: a preview, an approval."""
    return with_required_approval(with_required_preview(decision, tool), tool)


def _recheck(tool: Tool, arguments: dict[str, Any], scanner: Scanner) -> tuple[MeshError | None, DescribedArguments]:
    refusal = recheck(tool, arguments, tool.argument_spec)
    return refusal, describe_arguments(PreparedArguments(arguments, refusal=refusal), tool, scanner)


def find_refusal(
    decision: Decision,
    tool: Tool,
    caller: Caller,
    arguments: dict[str, Any],
    resources: tuple[str, ...],
    satisfies: Satisfies,
    sandbox: str = "",
) -> tuple[MeshError, State] | None:
    """Return why the call may not run and the state that it ends in; None if it may.

    Approval comes last: no person is asked about a call that could not run with it.
    """
    if decision.verdict is Verdict.DENY:
        return errors.denied(decision), State.DENIED
    if decision.obligations and (kinds := unmet_kinds(decision.obligations, tool, sandbox)):
        return errors.obligation_unmet(decision, kinds), State.DENIED
    if caller.confined is not None:
        # A cached decision may have been made for other arguments, so the token's argument limits are checked here.
        refused = find_token_refusal(caller.confined, tool, arguments, resources, satisfies)
        if refused is not None:
            return errors.authority_exceeded(decision, refused), State.DENIED
    if decision.verdict is Verdict.NEEDS_APPROVAL:
        return errors.approval_required(decision), State.AWAITING_APPROVAL
    return None


def find_token_refusal(
    token: Identity, tool: Tool, arguments: dict[str, Any], resources: tuple[str, ...], satisfies: Satisfies
) -> Refusal | None:
    """Return why the token does not cover a call with these arguments, or None if it does."""
    name, version = split_version_name(tool.name)
    return not_covered(
        token,
        name,
        Version.parse(version),
        arguments=arguments,
        resources=resources,
        closed_world=tool.closed_world,
        satisfies=satisfies,
    )


def _fill_internal_arguments(invocation: Invocation, tool: Tool) -> None:
    """Set the arguments that only the mesh may set: after policy judged the caller's, before the tool gets them."""
    request, caller = invocation.request, invocation.request.caller
    facts = {
        "tenant": caller.tenant,
        "subject": caller.subject,
        "agent": caller.agent,
        "session_id": caller.session_id,
        "task_id": request.task_id,
        "invocation_id": invocation.invocation_id,
        "idempotency_key": request.idempotency_key,
        "trace_id": request.trace_id,
    }
    invocation.call_input, filled = call_input(tool.argument_spec, invocation.arguments, facts)
    if filled and tool.resources is not None:
        invocation.resources = tool.resources(invocation.call_input)
    invocation.changes = (*invocation.changes, *filled)


def _needs_approval(decision: Decision, hook: str) -> Decision:
    """Return the decision with approval required. A hook can ask for approval, and never allow what policy denies."""
    return replace(
        decision, verdict=Verdict.NEEDS_APPROVAL, reasons=(*decision.reasons, f"the hook {hook} asks for a person")
    )
