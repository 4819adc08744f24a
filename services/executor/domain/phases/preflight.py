"""What comes before a call runs: it has time and room, its tool and its arguments are sound, and policy allows it."""

from __future__ import annotations

from dataclasses import replace

from libs.common.auth.coverage import Satisfies
from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest
from libs.common.redaction.scanner import Scanner
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.arguments.prepare import call_input, prepare, recheck
from services.executor.domain.audit_records import decision_record
from services.executor.domain.call_fingerprint import facts_of
from services.executor.domain.hooks.hooks import NOTHING, Verdicts
from services.executor.domain.hooks.invocation_hooks import Hooking
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Decision, Payload, Question, Verdict
from services.executor.domain.payload_summary import describe
from services.executor.domain.phases.authorize import refusal_of
from services.executor.domain.phases.finish import Closing
from services.executor.domain.ports import AuditTrail, Authorizer, PreviewTokens, Runner, ToolView
from services.executor.domain.results.obligations import bound, demands_preview
from services.executor.domain.states import State
from services.executor.domain.tool import Tool


class Opening:
    """Request, validate and authorize, for calls and for previews of calls alike."""

    def __init__(
        self,
        *,
        tools: ToolView,
        authorizer: Authorizer,
        audit: AuditTrail,
        runner: Runner,
        previews: PreviewTokens,
        hooking: Hooking,
        clock: Clock,
        scanners: TenantScanners,
        satisfies: Satisfies,
        closing: Closing,
    ) -> None:
        self._tools, self._authorizer, self._audit, self._runner = tools, authorizer, audit, runner
        self._previews, self._hooking = previews, hooking
        self._clock, self._scanners, self._satisfies, self._closing = clock, scanners, satisfies, closing

    def request(self, invocation: Invocation) -> None:
        """Return if the call has time to be served in and room for its evidence."""
        if invocation.deadline.run_until <= self._clock.monotonic():
            raise errors.deadline_exceeded()
        self._audit.admit()

    def validate(self, invocation: Invocation) -> Tool:
        """Return the tool: it exists and can run here, and the arguments keep its contract."""
        request = invocation.request
        tool = invocation.tool = self._tools.resolve(request.tool, request.version)
        if request.tool_digest != tool.digest:
            _refuse_unknown_schema(tool, request.tool_digest)
        sandbox = self._runner.sandbox_for(tool)
        if sandbox is None:
            raise errors.nothing_runs_it(tool.name)
        invocation.sandbox = sandbox
        invocation.enter(State.SELECTED)
        if tool.key_required and not request.idempotency_key and not invocation.preview:
            raise errors.key_required(tool.qualified)
        self._arguments(invocation, tool)
        invocation.enter(State.ARGUMENTS_READY)
        return tool

    async def still_usable(self, invocation: Invocation, tool: Tool) -> None:
        """Return if the call may run now. It was looked at when it came, and one that then waited for its turn may find that the tool broke
        its word meanwhile or was taken out of use, or that other policies are asked by now."""
        if invocation.state is not State.QUEUED:
            return
        self._tools.resolve(tool.qualified, tool.version)
        decision, question = invocation.decision, invocation.question
        if decision is not None and question is not None and self._authorizer.outdated(decision):
            await self._decide_again(invocation, tool, question)

    async def hooked(self, invocation: Invocation, tool: Tool) -> Verdicts:
        """Ask the hooks; what they changed is held to the contract again. Return what they have to say."""
        verdicts = await self._hooking.before(invocation, tool)
        if verdicts.arguments is not None:
            self._described(invocation, tool, recheck(tool, invocation.arguments, tool.intake))
        return verdicts

    async def authorize(self, invocation: Invocation, tool: Tool) -> None:
        """Ask hooks, where there are any, and policy; whatever is not a plain yes ends here, on record. Nobody is asked about a call that
        is not the caller's to make whatever they answer."""
        if invocation.request.caller.other_session:
            raise errors.other_session()
        hooked = await self.hooked(invocation, tool) if self._hooking.active else NOTHING
        caller, asked = invocation.request.caller, invocation.asked.digest if invocation.asked else ""
        question = Question(invocation.invocation_id, invocation.arguments, asked, hooked.risk)
        invocation.question = question
        decision = invocation.decision = bound(await self._authorizer.decide(tool, caller, question), tool)
        if hooked.asks_approval and decision.verdict is Verdict.ALLOW:
            decision = invocation.decision = _for_a_person(decision, hooked.asks_approval)
        refused = self._refusal(invocation, tool, decision)
        if refused is None:
            invocation.enter(State.APPROVED)
            self._fill(invocation, tool)
            return
        refusal, state = refused
        if self._hooking.active:
            if state is State.AWAITING_APPROVAL:
                refusal, state = await self._before_a_person(invocation, tool, decision, refusal)
            await self._hooking.after_failure(invocation, refusal)
        invocation.enter(state)
        invocation.reason, invocation.closed = refusal.reason, True
        record = decision_record(invocation, refusal)
        await self._closing.append(record, until=invocation.deadline.answer_by)
        refusal.evidence = (f"records/{record.record_id}",)
        raise refusal

    async def _decide_again(self, invocation: Invocation, tool: Tool, question: Question) -> None:
        """Have the present policies decide about a call that others let pass. What they demand binds it, and is durable before it runs."""
        caller = invocation.request.caller
        decision = invocation.decision = bound(await self._authorizer.decide(tool, caller, question), tool)
        refused = self._refusal(invocation, tool, decision)
        if refused is not None:
            raise refused[0]
        await self.record_decision(invocation)

    async def _before_a_person(
        self, invocation: Invocation, tool: Tool, decision: Decision, required: MeshError
    ) -> tuple[MeshError, State]:
        """Return how a call that needs a person ends: in asking for one, unless it was rejected before."""
        stopped = await self._hooking.at_approval(invocation, tool, decision)
        if stopped is None:
            return required, State.AWAITING_APPROVAL
        stopped.metadata["decision"] = decision.name
        invocation.enter(State.AWAITING_APPROVAL)
        return stopped, State.DENIED if stopped.reason is Reason.APPROVAL_REJECTED else State.BLOCKED

    async def record_decision(self, invocation: Invocation) -> None:
        """Return once the decision is durable: nothing starts before."""
        record = decision_record(invocation)
        invocation.decision_record = record.record_id
        invocation.evidence.append(f"records/{record.record_id}")
        await self._closing.append(record, until=invocation.deadline.run_until)

    def scanner(self, invocation: Invocation) -> Scanner:
        """Return what finds secrets in the words of the caller's tenant."""
        return self._scanners.of(invocation.request.caller.tenant)

    def _fill(self, invocation: Invocation, tool: Tool) -> None:
        """Set what only the mesh may set: after policy judged what the caller asked for, before the tool gets it."""
        intake, request, caller = tool.intake, invocation.request, invocation.request.caller
        if intake is None or not (intake.fills or intake.call):
            return
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
        invocation.call_input, filled = call_input(intake, invocation.arguments, facts)
        invocation.changes = (*invocation.changes, *filled)

    def _refusal(self, invocation: Invocation, tool: Tool, decision: Decision) -> tuple[MeshError, State] | None:
        caller, arguments = invocation.request.caller, invocation.arguments
        if invocation.preview and decision.verdict is Verdict.NEEDS_APPROVAL:
            # Nothing is done and no result is told, so nobody has to approve; what the token does not cover stays uncovered.
            decision = replace(decision, verdict=Verdict.ALLOW)
        refused = refusal_of(decision, tool, caller, arguments, self._satisfies, invocation.sandbox)
        if refused is None and not invocation.preview and demands_preview(decision):
            token = invocation.request.preview_token
            if not (token and self._previews.accepts(token, facts_of(caller, tool, arguments))):
                return errors.preview_required(decision, tool.name), State.DENIED
        return refused

    def _arguments(self, invocation: Invocation, tool: Tool) -> None:
        prepared = prepare(tool, invocation.request.arguments, tool.intake)
        invocation.arguments, invocation.changes = prepared.arguments, prepared.changes
        self._described(invocation, tool, prepared.refusal)

    def _described(self, invocation: Invocation, tool: Tool, refusal: MeshError | None) -> None:
        if refusal is not None:
            # Only their digest: what breaks the contract may be secret in ways that the contract does not foresee.
            invocation.asked = Payload(digest(invocation.arguments))
            raise refusal
        invocation.asked = describe(invocation.arguments, tool.input, tool, self.scanner(invocation))


def _for_a_person(decision: Decision, hook: str) -> Decision:
    """The decision as a hook wants it: it can demand a person where policy allows, and never allow what policy denies."""
    return replace(
        decision, verdict=Verdict.NEEDS_APPROVAL, reasons=(*decision.reasons, f"the hook {hook} asks for a person")
    )


def _refuse_unknown_schema(tool: Tool, pinned: str) -> None:
    """Whoever calls a deferred tool must know its schema, and whoever pins a version gets that one or none."""
    if tool.deferred:
        raise errors.schema_not_loaded(tool.name)
    if pinned:
        raise errors.version_changed(tool.name)
