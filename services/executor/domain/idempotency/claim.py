"""Claims idempotency keys: the first call with a key runs, later calls get its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from libs.common.errors import MeshError
from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse_object
from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.clock import Clock
from libs.common.runtime.retry import is_transient, retry_until
from libs.common.runtime.single_flight import SingleFlight
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.idempotency.effect import FailureEffect, effect_of_failure
from services.executor.domain.idempotency.unknown_outcome import ClaimLostError, UnresolvedClaim
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Claim, ClaimOutcome, EncodedRecord, Record, Result
from services.executor.domain.ports import AuditTrail, ClaimStore, Observer
from services.executor.domain.scheduling.shielded import ShieldedSteps
from services.executor.domain.scheduling.time_limit import limit_wait
from services.executor.domain.tool import Tool, UncertainOutcome

# How long a claim update is retried after the store failed: as long as a database takes to restart or fail over.
SETTLE_SECONDS = 60.0
_MAX_CONFIRMED = 10_000

Resolve = Callable[[Claim, UnresolvedClaim], Awaitable[ClaimOutcome | None]]
Recheck = Callable[[], Awaitable[None]]


class IdempotencyClaims:
    """Acquires the claim of a call, and settles or releases it when the call ends."""

    def __init__(
        self,
        store: ClaimStore,
        audit: AuditTrail,
        steps: ShieldedSteps,
        observer: Observer,
        clock: Clock,
        *,
        store_timeout: float,
    ) -> None:
        self._store, self._audit, self._steps, self._observer, self._clock = store, audit, steps, observer, clock
        self._store_timeout = store_timeout
        self._restores: SingleFlight[str, None] = SingleFlight()
        self._confirmed: BoundedCache[str, bool] = BoundedCache(_MAX_CONFIRMED)

    async def acquire(
        self, invocation: Invocation, tool: Tool, resolve: Resolve, recheck: Recheck
    ) -> ClaimOutcome | None:
        """Claim the key of the call and return None, or return the outcome of the first call with it.

        `resolve` decides where the first call's outcome is unknown. `recheck` decides again whether the call may run,
        after it waited for another call with the key. The audit record of a returned outcome is in the log. Raises
        DEADLINE_EXCEEDED or TOKEN_EXPIRED when the wait for another call with the key takes all the time there is.
        """
        claim = _claim_of(invocation, tool)
        waits: list[bool] = []
        async with limit_wait(invocation, self._clock):
            # Set before the store answers: if the answer is lost to a cancellation, the claim is still released.
            invocation.claim = claim
            outcome = await self._store.acquire(claim, lambda: waits.append(True))
        if outcome is not None and not isinstance(outcome, UnresolvedClaim):
            invocation.claim = None
        if waits:
            await recheck()
        if isinstance(outcome, UnresolvedClaim):
            outcome = await resolve(claim, outcome)
            if outcome is not None:
                invocation.claim = None
        if outcome is not None and outcome.unconfirmed is not None:
            await self._restore_record(invocation, claim, outcome.unconfirmed)
        return outcome

    async def prepare(self, invocation: Invocation, result: Result, volume: str) -> None:
        """Store the result of a call that is about to commit its changes, so that it survives this process.

        Raises SERVICE_UNAVAILABLE if the claim is lost or the store fails: nothing may be committed then.
        """
        if invocation.claim is None or not invocation.claim.volumes_only:
            return
        try:
            async with asyncio.timeout(self._store_timeout):
                await self._store.prepare(invocation.claim, result, volume)
        except ClaimLostError:
            raise key_errors.claim_lost() from None
        except TimeoutError as cause:
            raise key_errors.key_not_stored() from cause
        invocation.prepared = True

    async def settle(self, invocation: Invocation, claim: Claim, outcome: ClaimOutcome) -> None:
        """Store the outcome under the key. Raises ClaimLostError when another call holds the claim by now.

        A store failure does not affect the caller: the update is retried in the background.
        """
        await self._update(invocation, partial(self._settle, invocation, claim, outcome))

    async def settle_failure(self, invocation: Invocation, error: MeshError, record: Record) -> None:
        """Release the claim where a retry is safe; otherwise store the error that later calls with the key get."""
        claim, tool = invocation.claim, invocation.tool
        if claim is None or tool is None:
            return
        effect = effect_of_failure(invocation, error, held=self._store.is_held(claim))
        if effect is FailureEffect.NONE:
            await self._update(invocation, partial(self._store.release, claim))
        elif effect is FailureEffect.UNKNOWN:
            await self._settle_unknown(invocation, tool, claim, record)
        elif error.row.retryable:
            await self._update(invocation, partial(self._store.release, claim))
        else:
            await self._settle_error(invocation, claim, error, record)

    async def _settle_unknown(self, invocation: Invocation, tool: Tool, claim: Claim, record: Record) -> None:
        """Let the next call with the key find out what happened; where none can, store that it is unknown."""
        resumes = tool.checkpoint is not None and invocation.restore is not None
        if invocation.prepared or resumes or tool.uncertain is UncertainOutcome.QUERY_STATUS:
            await self._update(invocation, partial(self._store.abandon, claim))
        elif tool.repeatable:
            await self._update(invocation, partial(self._store.release, claim))
        else:
            unknown = key_errors.outcome_unknown(invocation.invocation_id, claim.name)
            await self._settle_error(invocation, claim, unknown, record)

    async def _settle_error(self, invocation: Invocation, claim: Claim, error: MeshError, record: Record) -> None:
        with suppress(ClaimLostError):
            await self.settle(invocation, claim, ClaimOutcome(invocation.run_id, error, record))

    async def _settle(self, invocation: Invocation, claim: Claim, outcome: ClaimOutcome) -> None:
        await self._store.settle(claim, outcome)
        if invocation.forget_commit is not None:
            self._steps.start(invocation.forget_commit())

    async def _restore_record(self, invocation: Invocation, claim: Claim, record: EncodedRecord) -> None:
        """Append the record of the outcome again: the process that stored it may have died before it did.

        The log stores a record once.
        """
        if record.record_id in self._confirmed:
            return
        try:
            async with limit_wait(invocation, self._clock):
                await self._restores.run(record.record_id, partial(self._restore_once, claim, record))
        except MeshError as error:
            # Copied, because each call adds its own metadata to its error.
            raise MeshError(error.reason, retry_after=error.retry_after) from error

    async def _restore_once(self, claim: Claim, record: EncodedRecord) -> None:
        await self._audit.restore(record, within=self._store_timeout)
        self._confirmed.put(record.record_id, True)
        self._steps.start(self._store.confirm_record(claim, record.record_id))

    async def _update(self, invocation: Invocation, step: Callable[[], Awaitable[None]]) -> None:
        """Update the claim. On failure the update is retried for SETTLE_SECONDS; after that the lease expires."""
        claim = invocation.claim
        try:
            async with asyncio.timeout(self._store_timeout):
                await step()
        except ClaimLostError:
            raise
        except Exception as cause:
            self._observer.unexpected(cause)
            # Not where the claim was never held: a store that comes back must not get a retry of every failed call.
            held = invocation.attempts or (claim is not None and self._store.is_held(claim))
            if held and is_transient(cause):
                self._steps.start(self._retry(step))

    async def _retry(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await retry_until(step, attempt_timeout=self._store_timeout, time_budget=SETTLE_SECONDS)
        except ClaimLostError:
            # The call that holds the claim by now stores its own outcome.
            return
        except Exception as cause:
            self._observer.unexpected(cause)


def _claim_of(invocation: Invocation, tool: Tool) -> Claim:
    request, caller = invocation.request, invocation.request.caller
    return Claim(
        tenant=caller.tenant,
        tool=tool.qualified,
        subject=caller.subject,
        # Never the token: a renewed token must find the first result.
        session=caller.session_id,
        key=request.idempotency_key,
        # As the caller sent them: a default that changes between versions must not turn a retry into a conflict.
        arguments_digest=digest(parse_object(request.arguments)),
        invocation_id=invocation.run_id,
        window=tool.window,
        repeatable=tool.repeatable,
        volumes_only=tool.volumes_only,
    )
