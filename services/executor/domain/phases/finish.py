"""Completes a call: its outcome is durable before the caller gets it, whether it succeeded or failed."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.audit_records import outcome_record, terminal_state
from services.executor.domain.deadlines import blame_deadline, time_left
from services.executor.domain.idempotency.claim import IdempotencyClaims
from services.executor.domain.idempotency.effect import describe_effect
from services.executor.domain.idempotency.unknown_outcome import ClaimLostError, late_owner_error
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Claim, ClaimOutcome, Record, Result
from services.executor.domain.ports import AuditTrail
from services.executor.domain.results.build_result import build_result
from services.executor.domain.results.check import VerifiedResult
from services.executor.domain.scheduling.shielded import ShieldedSteps
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
        invocation.closed = True
        record = outcome_record(invocation, result=verified.payload)
        invocation.evidence.append(f"records/{record.record_id}")
        claim, is_lost = invocation.claim, False
        try:
            if claim is None:
                within = time_left(invocation.deadline.answer_by, self._clock, self._audit_wait)
                await self._audit.conclude(record, within=within)
            else:
                result = build_result(invocation, tool, verified, self._clock)
                outcome = ClaimOutcome(invocation.run_id, result, record)
                is_lost = await self._steps.run_shielded(self._settle_and_record(invocation, claim, outcome, record))
        except MeshError as error:
            raise self._withheld(invocation, tool, error) from error
        if claim is not None and is_lost:
            # The run is on record, but another call answers for the key by now.
            raise late_owner_error(tool, claim)
        invocation.phases.end()
        return build_result(invocation, tool, verified, self._clock)

    async def _settle_and_record(
        self, invocation: Invocation, claim: Claim, outcome: ClaimOutcome, record: Record
    ) -> bool:
        """Settle the claim, then record. Return whether the claim was lost before.

        If the log fails now, a retry must find the result and not run the tool. A run that lost its claim happened, so
        it is recorded all the same.
        """
        is_lost = False
        try:
            await self._claims.settle(invocation, claim, outcome)
        except ClaimLostError:
            is_lost = True
        within = time_left(invocation.deadline.answer_by, self._clock, self._audit_wait)
        await self._audit.conclude(record, within=within)
        return is_lost

    def _withheld(self, invocation: Invocation, tool: Tool, unrecorded: MeshError) -> MeshError:
        """Return the error of a call that succeeded and whose record is not durable in time.

        A retry with the key returns the result. Without a key it would repeat the effect.
        """
        failure = blame_deadline(unrecorded, invocation.deadline.answer_by, self._clock)
        if failure is unrecorded:
            failure = errors.result_withheld()
        failure.metadata["tool_ran"] = "true"
        if invocation.claim is None and not tool.repeatable:
            failure.retryable = False
        return failure

    async def fail(self, invocation: Invocation, error: MeshError, until: float) -> MeshError:
        """Record a failure once and return what the caller gets: the failure, or that it could not be recorded."""
        error.invocation_id = invocation.invocation_id
        invocation.phases.end(error)
        if invocation.closed:
            invocation.reason = error.reason
            return error
        invocation.enter(terminal_state(invocation, error))
        invocation.reason, invocation.closed = error.reason, True
        record = outcome_record(invocation, cancellation=error.metadata.get("cancellation", ""))
        describe_effect(invocation, error)
        await self._claims.settle_failure(invocation, error, record)
        if error.reason in _UNRECORDED:
            # The log did not confirm the decision. The outcome is sent when it accepts records again.
            self._audit.leave(record)
            return error
        try:
            # Only a run is certain to have its decision in the log, so only its outcome may go to the outbox.
            write = self._audit.conclude if invocation.attempts else self._audit.append
            await write(record, within=time_left(until, self._clock, self._audit_wait))
        except MeshError as unrecorded:
            failure = blame_deadline(unrecorded, until, self._clock)
            describe_effect(invocation, failure)
            failure.invocation_id, invocation.reason = invocation.invocation_id, failure.reason
            return failure
        error.evidence = (*invocation.evidence, f"records/{record.record_id}")
        return error

    async def fail_unattended(self, invocation: Invocation, error: MeshError) -> MeshError:
        """Record a failure that no caller waits for. The log has its full time."""
        return await self.fail(invocation, error, until=self._clock.monotonic() + self._audit_wait)
