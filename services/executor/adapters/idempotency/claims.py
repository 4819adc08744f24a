"""Idempotency claims in PostgreSQL. One row decides which call runs, across replicas and after a crash.

Stored outcomes are encrypted, because they may contain sensitive data.

A claim is held under a short lease that its owner renews. When a lease expires, exactly one other call takes the claim
over, together with the ids of all runs that may have had their effect. The tool's rule decides what happens then, see
`domain/idempotency/unknown_outcome.py`. A former owner that resumes late finds its claim lost and cannot overwrite
anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.common.v1.error_reason_pb2 import ErrorEnvelope
from toolmesh.executor.v1.result_envelope_pb2 import ResultEnvelope

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import envelope, from_envelope
from libs.common.sealing import Seal, SealError
from services.executor.adapters.idempotency.claim_rows import (
    FAILED,
    SUCCEEDED,
    UNKNOWN,
    ClaimRows,
    Row,
    Scope,
    scope_of,
)
from services.executor.adapters.idempotency.leases import ClaimLeases
from services.executor.adapters.idempotency.outcome_context import outcome_context
from services.executor.adapters.idempotency.waiters import ClaimWaiters
from services.executor.convert.invocation import envelope_of, result_of
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.idempotency.unknown_outcome import (
    MOST_RUNS,
    ClaimLostError,
    PreparedResult,
    UnresolvedClaim,
)
from services.executor.domain.model import Claim, ClaimOutcome, EncodedRecord, Record, Result

LEASE_SECONDS = 10.0
# Of the pool's five connections. Settling and renewing always find one; further calls queue here instead of failing
# there.
_MAX_ACQUIRING = 3


class _ClaimState(Enum):
    """The state of a claim without a stored outcome."""

    HELD = "held"
    IN_PROGRESS = "in progress"


class PostgresClaims:
    """Acquires and settles idempotency claims."""

    def __init__(
        self,
        engine: AsyncEngine,
        owner: str,
        seal: Seal,
        encode: Callable[[Record], bytes],
        *,
        lease: float = LEASE_SECONDS,
    ) -> None:
        self._rows, self._seal, self._encode, self._lease = ClaimRows(engine, owner), seal, encode, lease
        self._waiters, self._leases = ClaimWaiters(self._rows), ClaimLeases(self._rows, lease)
        self._acquiring = asyncio.Semaphore(_MAX_ACQUIRING)
        self._lookups: dict[Scope, asyncio.Future[Row | None]] = {}

    async def acquire(self, claim: Claim, on_wait: Callable[[], None] = lambda: None) -> ClaimOutcome | None:
        """Acquire the claim, or return the outcome of the first call, waiting for it while that call runs.

        Calls `on_wait` before it waits. Returns UnresolvedClaim if the claim is now held and its former owner died
        without a known outcome.
        """
        while (state := self._evaluate(claim, await self._look_up(claim, on_wait))) is _ClaimState.IN_PROGRESS:
            continue
        return state if isinstance(state, ClaimOutcome) else None

    def is_held(self, claim: Claim) -> bool:
        """Return whether this call certainly holds the claim at this moment."""
        return self._leases.is_held(claim)

    def listen(self, on_lost: Callable[[str], None], on_failure: Callable[[Exception], None]) -> None:
        """Set the callbacks for an invocation whose claim may be lost while it runs, and for failed renewals."""
        self._leases.listen(on_lost, on_failure)

    async def prepare(self, claim: Claim, result: Result, volume: str) -> None:
        """Store the result of a call that is about to commit. Raises ClaimLostError if another call holds the claim."""
        if not await self._rows.prepare(claim, self._seal_outcome(claim, result), volume):
            raise ClaimLostError(claim.invocation_id)

    async def confirm_record(self, claim: Claim, record_id: str) -> None:
        """Remove the stored audit record of the key's outcome, because the log has it."""
        await self._rows.confirm_record(claim, record_id)

    async def settle(self, claim: Claim, settled: ClaimOutcome) -> None:
        """Store the outcome of the call. Raises ClaimLostError, and changes nothing, if another call holds the
        claim."""
        outcome, record = settled.outcome, settled.record
        with self._ending_lease(claim):
            sealed = self._seal_outcome(claim, outcome)
            encoded = None if record is None else EncodedRecord(record.record_id, self._encode(record))
            if isinstance(outcome, MeshError):
                state = UNKNOWN if outcome.reason is Reason.UNKNOWN_OUTCOME else FAILED
                is_settled = await self._rows.settle(claim, state, encoded, error=sealed)
            else:
                is_settled = await self._rows.settle(claim, SUCCEEDED, encoded, result=sealed)
        if not is_settled:
            raise ClaimLostError(claim.invocation_id)

    async def release(self, claim: Claim) -> None:
        """Release the claim if this call holds it. The unknown outcome of a former owner stays recorded."""
        with self._ending_lease(claim):
            await self._rows.release(claim)

    async def abandon(self, claim: Claim) -> None:
        """Give up the claim, if this call holds it, with an unknown outcome; the next call resolves it."""
        with self._ending_lease(claim):
            await self._rows.abandon(claim)

    async def sweep(self) -> int:
        """Delete a bounded number of expired claims; return how many."""
        return await self._rows.sweep()

    async def stop(self) -> None:
        """Stop renewing leases and polling claims."""
        await self._leases.stop()
        await self._waiters.stop()

    async def _look_up(self, claim: Claim, on_wait: Callable[[], None]) -> Row | None:
        """Return the claim's row, after waiting for the end of another call that holds it; None to try again."""
        scope, digest = scope_of(claim), claim.arguments_digest
        if not self._waiters.is_watching(scope, digest):
            lookup = self._lookups.get(scope)
            row = await (self._acquire_shared(claim, scope) if lookup is None else _join(lookup))
            if row is None or not row.in_progress or row.arguments_digest != digest:
                return row
        on_wait()
        return await self._waiters.wait(scope, digest)

    async def _acquire_shared(self, claim: Claim, scope: Scope) -> Row | None:
        """Try to acquire the claim; concurrent calls of this process with the same key share the statement.

        Not a SingleFlight: only this caller may hold the claim, and its cancellation must cancel the statement.
        """
        lookup: asyncio.Future[Row | None] = asyncio.get_running_loop().create_future()
        self._lookups[scope] = lookup
        try:
            async with self._acquiring:
                row = await self._acquire(claim)
        except BaseException as error:
            if isinstance(error, MeshError):
                lookup.set_exception(error)
                lookup.exception()
            else:
                lookup.set_result(None)
            raise
        finally:
            del self._lookups[scope]
        lookup.set_result(None if row is None else row._replace(ours=False))
        return row

    async def _acquire(self, claim: Claim) -> Row | None:
        since = time.monotonic()
        row = await self._rows.acquire(claim, self._lease)
        if row is not None and row.ours:
            self._leases.begin(claim, since)
        return row

    def _evaluate(self, claim: Claim, row: Row | None) -> ClaimOutcome | _ClaimState:
        if row is None:
            return _ClaimState.IN_PROGRESS
        if row.arguments_digest != claim.arguments_digest:
            raise key_errors.key_conflict()
        if row.ours:
            return self._evaluate_held(claim, row)
        return _ClaimState.IN_PROGRESS if row.in_progress else self._open_outcome(claim, row)

    def _evaluate_held(self, claim: Claim, row: Row) -> ClaimOutcome | _ClaimState:
        runs, exhausted = tuple(row.doubted.split()), row.losses >= MOST_RUNS
        if not exhausted and (claim.repeatable or not runs):
            return _ClaimState.HELD
        if not runs:
            return UnresolvedClaim(claim.invocation_id, key_errors.owners_lost(claim.name), exhausted=True)
        unknown = key_errors.outcome_unknown(runs[0], claim.name)
        return UnresolvedClaim(runs[0], unknown, runs=runs, exhausted=exhausted, prepared=self._prepared(claim, row))

    def _prepared(self, claim: Claim, row: Row) -> PreparedResult | None:
        if row.prepared is None:
            return None
        try:
            message = self._seal.open(row.prepared, _context(claim, row.prepared_by))
        except SealError:
            return None
        result = result_of(ResultEnvelope.FromString(message))
        return PreparedResult(row.prepared_by, result, row.prepared_volume)

    def _seal_outcome(self, claim: Claim, outcome: Result | MeshError) -> bytes:
        message = envelope(outcome) if isinstance(outcome, MeshError) else envelope_of(outcome)
        return self._seal.seal(message.SerializeToString(), _context(claim, claim.invocation_id))

    def _open_outcome(self, claim: Claim, row: Row) -> ClaimOutcome:
        """Decrypt the outcome of the first call. If that fails the call is not repeated, because it did end."""
        try:
            message = self._seal.open(
                (row.error or row.result) or b"",
                _context(claim, row.invocation_id),
            )
        except SealError:
            raise key_errors.outcome_unknown(row.invocation_id, claim.name) from None
        failed = row.state in (FAILED, UNKNOWN)
        outcome = (
            from_envelope(ErrorEnvelope.FromString(message))
            if failed
            else result_of(ResultEnvelope.FromString(message))
        )
        record = None if row.record is None else EncodedRecord(row.record_id, row.record)
        return ClaimOutcome(row.invocation_id, outcome, unconfirmed=record)

    @contextmanager
    def _ending_lease(self, claim: Claim) -> Iterator[None]:
        """End the lease once the row is updated.

        If the update fails transiently or is canceled, the lease is renewed for as long as the claim object lives, so
        that a retry of the update finds the claim still held.
        """
        try:
            yield
        except (MeshError, asyncio.CancelledError):
            raise
        except Exception:
            self._end_lease(claim)
            raise
        self._end_lease(claim)

    def _end_lease(self, claim: Claim) -> None:
        self._leases.end(claim)
        self._waiters.poll_soon(scope_of(claim))


async def _join(lookup: asyncio.Future[Row | None]) -> Row | None:
    """Wait for another call's statement. A failure is copied for this call."""
    try:
        return await asyncio.shield(lookup)
    except MeshError as error:
        raise MeshError(error.reason, retry_after=error.retry_after) from error


def _context(claim: Claim, invocation_id: str) -> str:
    return outcome_context(scope_of(claim), claim.arguments_digest, invocation_id)
