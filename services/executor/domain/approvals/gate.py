"""The gate in front of calls that need a person's approval: asks for it, checks it, and uses it just before the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import canonical
from libs.common.redaction.scanner import Scanner
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.approvals.ticket import Approvals, Redemption, Ticket, TicketDraft
from services.executor.domain.deadlines import blame_deadline, time_left
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Decision, PreviewResult, Request, Verdict, key_name
from services.executor.domain.ports import Authorizer, ToolView
from services.executor.domain.results.size_limits import truncate_effects
from services.executor.domain.scheduling.offload import Offload
from services.executor.domain.tool import Mutation, Tool

# The approvers of a call that policy allows and the mesh does not.
DEFAULT_APPROVERS = ("approvers",)
CANNOT_BE_UNDONE = "What the tool changes cannot be undone, so a person must approve it."
AUTHOR_DEMANDS = "The tool's author demands that a person approves every call."
# What a ticket can hold of arguments and of a preview, with room for the JSON around it.
MAX_SHOWN_BYTES = 60 * 1024
_WAIT_SECONDS = 5.0
_FOREVER = float("inf")

PreviewCall = Callable[[Request], Awaitable[PreviewResult]]


def with_required_approval(decision: Decision, tool: Tool) -> Decision:
    """Return the decision with approval required if the tool is irreversible, or its author demands it.

    No policy can waive it.
    """
    if not tool.requires_approval or decision.verdict is not Verdict.ALLOW:
        return decision
    irreversible = tool.mutation is Mutation.WRITE_IRREVERSIBLE
    return replace(
        decision,
        verdict=Verdict.NEEDS_APPROVAL,
        reasons=(*decision.reasons, CANNOT_BE_UNDONE if irreversible else AUTHOR_DEMANDS),
        approver_groups=DEFAULT_APPROVERS,
        quorum=1,
    )


class ApprovalGate:
    """Lets calls that need approval pass with an approved ticket of their own, once."""

    def __init__(
        self, approvals: Approvals, tools: ToolView, authorizer: Authorizer, offload: Offload, clock: Clock
    ) -> None:
        self._approvals, self._tools, self._authorizer = approvals, tools, authorizer
        self._offload, self._clock = offload, clock
        self.preview: PreviewCall | None = None
        """Previews a call, so that its approver sees what it would do. Set where the use cases are composed."""

    async def request(self, invocation: Invocation, tool: Tool, decision: Decision) -> Ticket:
        """Return the open ticket of a call that needs approval. Raises when none can be made; the call is refused."""
        preview = await self._preview(invocation, tool)
        redact = partial(_redacted, invocation.arguments, tool, invocation.scanner)
        draft = TicketDraft(
            invocation_id=invocation.invocation_id,
            tool=tool,
            caller=invocation.request.caller,
            decision=decision,
            arguments_digest=_digest_of(invocation),
            redacted_arguments=await self._offload.run(invocation, redact),
            preview=preview,
            resources=invocation.resources,
            risk=invocation.question.risk if invocation.question is not None else (),
            sandbox=invocation.sandbox,
        )
        return await self._within_deadline(invocation, self._approvals.create(draft, within=self._wait(invocation)))

    async def check(self, invocation: Invocation, tool: Tool, decision: Decision) -> Ticket:
        """Return the ticket that the call names if it could be used now. Raises why it could not."""
        use = _redemption(invocation, tool, decision)
        checking = self._approvals.redeem(use, validate_only=True, within=self._wait(invocation))
        return await self._within_deadline(invocation, checking)

    async def redeem(self, invocation: Invocation, tool: Tool) -> None:
        """Use the approval of the call, just before its run. Raises why it does not hold any more.

        Nothing that requires one passes without an approval, whatever the decision was.
        """
        decision = invocation.decision
        if invocation.preview or decision is None:
            return
        if invocation.approval is None:
            if tool.requires_approval or decision.verdict is Verdict.NEEDS_APPROVAL:
                raise errors.approval_required(decision)
            return
        self._tools.resolve(tool.qualified, tool.version)
        if self._authorizer.outdated(decision):
            raise MeshError(Reason.TICKET_POLICY_CHANGED, metadata={"ticket": invocation.approval.name})
        use = _redemption(invocation, tool, decision)
        redeeming = self._approvals.redeem(use, validate_only=False, within=self._wait(invocation))
        await self._within_deadline(invocation, redeeming)

    async def _preview(self, invocation: Invocation, tool: Tool) -> bytes:
        """Return what the call would do, or why that is not known. Only the end of the caller's time fails the call."""
        if self.preview is None or not tool.dry_run:
            return b""
        request = invocation.request
        try:
            foreseen = await self.preview(_preview_request(request, invocation, tool))
        except MeshError as error:
            if error.reason is Reason.DEADLINE_EXCEEDED:
                raise
            return canonical({"failed": error.reason.name})
        return await self._offload.run(invocation, partial(_forecast_form, foreseen))

    def _wait(self, invocation: Invocation) -> float:
        return time_left(invocation.deadline.run_until, self._clock, _WAIT_SECONDS)

    async def _within_deadline(self, invocation: Invocation, asking: Awaitable[Ticket]) -> Ticket:
        try:
            return await asking
        except MeshError as error:
            raise blame_deadline(error, invocation.deadline.run_until, self._clock) from None


def _preview_request(request: Request, invocation: Invocation, tool: Tool) -> Request:
    until = invocation.deadline.run_until
    return structs.replace(
        request,
        version=tool.version,
        idempotency_key="",
        native_call_id="",
        preview_token="",
        ticket="",
        deadline=None if until == _FOREVER else until,
    )


def _redemption(invocation: Invocation, tool: Tool, decision: Decision) -> Redemption:
    request, caller = invocation.request, invocation.request.caller
    key = request.idempotency_key
    scope = (caller.tenant, tool.qualified, caller.subject, caller.session_id, key)
    return Redemption(
        ticket=request.ticket,
        redemption_id=key_name(*scope) if key else invocation.invocation_id,
        invocation_id=invocation.invocation_id,
        tool=tool,
        caller=caller,
        arguments_digest=_digest_of(invocation),
        policy_set_version=decision.policy_set_version,
    )


def _digest_of(invocation: Invocation) -> str:
    return invocation.payload.digest if invocation.payload is not None else ""


def _redacted(arguments: dict[str, Any], tool: Tool, scanner: Scanner | None) -> bytes:
    """Return the arguments for a person to read: without sensitive values, or only their size if they are too long."""
    size = len(canonical(arguments))
    if scanner is None or size > MAX_SHOWN_BYTES:
        return canonical({"truncated": True, "size_bytes": size})
    shown = canonical(scanner.value(arguments, tool.input.declared).value)
    return shown if len(shown) <= MAX_SHOWN_BYTES else canonical({"truncated": True, "size_bytes": size})


def _forecast_form(foreseen: PreviewResult) -> bytes:
    forecast = foreseen.forecast
    changes = [
        {"resource": change.resource, "operation": change.operation} for change in truncate_effects(forecast.changes)
    ]
    form: dict[str, Any] = {
        "changes": changes,
        "change_count": len(forecast.changes),
        "preconditions": [{"description": text, "holds": holds} for text, holds in forecast.preconditions],
        "impact": forecast.impact,
    }
    encoded = canonical(form)
    if len(encoded) <= MAX_SHOWN_BYTES:
        return encoded
    return canonical({"change_count": len(forecast.changes), "truncated": True})
