"""Completes a call: its outcome is durable before the caller gets it, whether it succeeded or failed."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.json.jsonio import dump
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.audit_records import outcome_record, terminal_state
from services.executor.domain.deadlines import time_left
from services.executor.domain.idempotency.claim import IdempotencyClaims
from services.executor.domain.idempotency.unknown_outcome import ClaimLostError, late_owner_error
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Claim, ClaimOutcome, Record, Result, Source
from services.executor.domain.phases.shielded import ShieldedSteps
from services.executor.domain.ports import AuditTrail
from services.executor.domain.results.check import VerifiedResult
from services.executor.domain.results.size_limits import (
    truncate_changes,
    truncate_effects,
    truncate_paths,
    truncate_texts,
)
from services.executor.domain.states import State
from services.executor.domain.tool import Tool

# The log itself failed.
_UNRECORDED = frozenset({Reason.AUDIT_UNAVAILABLE, Reason.AUDIT_BACKPRESSURE, Reason.AUDIT_RECORD_INVALID})


class Completion:
    """Records outcomes and settles claims. A step that began continues even if the caller leaves."""

    def __init__(
        self, audit: AuditTrail, claims: IdempotencyClaims, steps: ShieldedSteps, clock: Clock, *, audit_wait: float
    ) -> None:
        self._audit, self._claims, self._steps, self._clock = audit, claims, steps, clock
        self._audit_wait = audit_wait

    async def succeed(self, invocation: Invocation, tool: Tool, verified: VerifiedResult) -> Result:
        """Return the result once its record is durable and its claim settled. Raises when they are not."""
        invocation.enter(State.SUCCEEDED)
        invocation.result_id, invocation.closed = new_id(), True
        record = outcome_record(invocation, result=verified.payload)
        invocation.evidence.append(f"records/{record.record_id}")
        try:
            if invocation.claim is None:
                within = time_left(invocation.deadline.answer_by, self._clock, self._audit_wait)
                await self._audit.conclude(record, within=within)
            else:
                outcome = ClaimOutcome(invocation.invocation_id, self._result(invocation, tool, verified))
                await self._steps.run_shielded(self._settle_and_record(invocation, invocation.claim, outcome, record))
        except ClaimLostError:
            # The run is on record, but another call answers for the key by now.
            raise late_owner_error(tool, invocation.invocation_id) from None
        except MeshError as error:
            raise errors.result_withheld() from error
        invocation.phases.end()
        return self._result(invocation, tool, verified)

    async def _settle_and_record(
        self, invocation: Invocation, claim: Claim, outcome: ClaimOutcome, record: Record
    ) -> None:
        """Settle the claim, then record: if the log fails now, a retry must find the result and not run the tool."""
        lost: ClaimLostError | None = None
        try:
            await self._claims.settle(invocation, claim, outcome)
        except ClaimLostError as error:
            # The run happened, so it is recorded all the same.
            lost = error
        within = time_left(invocation.deadline.answer_by, self._clock, self._audit_wait)
        await self._audit.conclude(record, within=within)
        if lost is not None:
            raise lost

    async def fail(self, invocation: Invocation, error: MeshError, until: float) -> MeshError:
        """Record a failure once and return what the caller gets: the failure, or that it could not be recorded."""
        error.invocation_id = invocation.invocation_id
        invocation.phases.end(error)
        if invocation.closed:
            invocation.reason = error.reason
            return error
        invocation.enter(terminal_state(invocation, error))
        invocation.reason, invocation.closed = error.reason, True
        record = outcome_record(invocation)
        await self._claims.settle_failure(invocation, error)
        if error.reason in _UNRECORDED:
            # The log did not confirm the decision. The outcome is sent when it accepts records again.
            self._audit.leave(record)
            return error
        try:
            # Only a run is certain to have its decision in the log, so only its outcome may go to the outbox.
            write = self._audit.conclude if invocation.attempts else self._audit.append
            await write(record, within=time_left(until, self._clock, self._audit_wait))
        except MeshError as unrecorded:
            unrecorded.invocation_id, invocation.reason = invocation.invocation_id, unrecorded.reason
            return unrecorded
        error.evidence = (*invocation.evidence, f"records/{record.record_id}")
        return error

    async def fail_unattended(self, invocation: Invocation, error: MeshError) -> MeshError:
        """Record a failure that no caller waits for. The log has its full time."""
        return await self.fail(invocation, error, until=self._clock.monotonic() + self._audit_wait)

    def _result(self, invocation: Invocation, tool: Tool, verified: VerifiedResult) -> Result:
        return Result(
            result_id=invocation.result_id,
            invocation_id=invocation.invocation_id,
            content=verified.content,
            tool_version=tool.name,
            tool_digest=tool.digest,
            source=Source.COMPUTED if invocation.retrieved is None else Source.CACHE,
            created=self._clock.now(),
            total=invocation.elapsed(),
            phases=tuple(invocation.phases.durations),
            attempts=invocation.attempts,
            sandbox=invocation.sandbox,
            trace_id=invocation.request.trace_id,
            changes=truncate_changes(invocation.changes) if invocation.changes else (),
            changed=truncate_paths(invocation.changed) if invocation.changed else (),
            deprecation=tool.deprecation,
            evidence=tuple(invocation.evidence),
            policies=invocation.decision.policies if invocation.decision else (),
            context=truncate_texts(invocation.context) if invocation.context else (),
            effects=truncate_effects(invocation.effects) if invocation.effects else (),
            effect_count=len(invocation.effects),
            declared=tool.effects,
            costs=invocation.costs,
            undone_by=tool.compensation,
            undo=b"" if invocation.undo is None else dump(invocation.undo),
            stored=verified.stored,
            rendered=verified.rendered,
            retrieved=invocation.retrieved,
        )
