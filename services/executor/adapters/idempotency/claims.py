"""Idempotency keys in PostgreSQL: one row decides who runs, also between replicas and after a crash.

What a call answered may hold anything, so it is stored sealed: the database, its backups and whoever reads them see none of it.

A key is held under a short lease that its owner renews. When an owner falls silent, exactly one other call takes the key over, with the memory of
every run that may have had its effect; what becomes of that doubt is the tool's rule, in `domain/uncertain.py`. An owner that was only
stopped and wakes up late finds its key gone: it settles nothing and overwrites nothing.
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

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump
from libs.common.rpc.status import envelope, from_envelope
from libs.common.sealing import Seal, SealError
from services.executor.adapters.idempotency.claim_rows import FAILED, SUCCEEDED, ClaimRows, Row, Scope, scope_of
from services.executor.adapters.idempotency.leases import ClaimLeases
from services.executor.adapters.idempotency.waiters import ClaimWatch
from services.executor.convert.invocation import envelope_of, result_of
from services.executor.domain import errors
from services.executor.domain.idempotency.unknown_outcome import MOST_RUNS, ClaimLostError, UnresolvedClaim
from services.executor.domain.model import Claim, ClaimOutcome, Result

LEASE_SECONDS = 10.0
# Of the pool's five connections: settling and renewing always find one, and a crowd of calls waits here instead of failing there.
_ASKING_AT_ONCE = 3


class _Found(Enum):
    """What a look at a key showed when it showed no ending."""

    OURS = "ours"
    UNDER_WAY = "under way"


class PostgresClaims:
    """The memory of idempotency keys."""

    def __init__(self, engine: AsyncEngine, owner: str, seal: Seal, *, lease: float = LEASE_SECONDS) -> None:
        self._rows, self._seal, self._lease = ClaimRows(engine, owner), seal, lease
        self._watch, self._leases = ClaimWatch(self._rows), ClaimLeases(self._rows, lease)
        self._doors = asyncio.Semaphore(_ASKING_AT_ONCE)
        self._asking: dict[Scope, asyncio.Future[Row | None]] = {}

    async def acquire(self, claim: Claim) -> ClaimOutcome | None:
        """Hold the key, or return what the first call with it ended in, waiting for it where it is under way. Returns Doubted when the
        key is now held, and its earlier owner fell silent without saying whether the effect happened."""
        while (found := self._judged(claim, await self._look(claim))) is _Found.UNDER_WAY:
            continue
        return found if isinstance(found, ClaimOutcome) else None

    def is_held(self, claim: Claim) -> bool:
        """Say whether nobody else can hold the key at this moment."""
        return self._leases.is_held(claim)

    def listen(self, loosened: Callable[[str], None], failed: Callable[[Exception], None]) -> None:
        """Be told the invocation whose key may now be somebody else's, while its call still works; and why keys could not be renewed."""
        self._leases.listen(loosened, failed)

    async def settle(self, claim: Claim, settled: ClaimOutcome) -> None:
        """Keep how the call ended. Raises Overtaken, and changes nothing, when somebody else holds the key meanwhile."""
        failed = isinstance(settled.outcome, MeshError)
        with self._letting_go(claim):
            sealed = self._sealed(claim, settled.outcome)
            state, stored = (FAILED, {"error": sealed}) if failed else (SUCCEEDED, {"result": sealed})
            kept = await self._rows.settle(claim, state, **stored)
        if not kept:
            raise ClaimLostError(claim.invocation_id)

    async def release(self, claim: Claim) -> None:
        """Give the key back, if this call still holds it. What an earlier owner may have done stays in doubt."""
        with self._letting_go(claim):
            await self._rows.release(claim)

    async def abandon(self, claim: Claim) -> None:
        """Let go of the key, if this call still holds it, without knowing whether its effect happened: whoever asks next decides."""
        with self._letting_go(claim):
            await self._rows.abandon(claim)

    async def sweep(self) -> int:
        """Forget keys whose window is over, a bounded number at a time; return how many."""
        return await self._rows.sweep()

    async def stop(self) -> None:
        """Renew nothing and look at nothing any more."""
        await self._leases.stop()
        await self._watch.stop()

    async def _look(self, claim: Claim) -> Row | None:
        """Return what is known of the key, after it has changed if it is under way. None if it is worth another look."""
        scope, asked = scope_of(claim), claim.arguments_digest
        if not self._watch.knows(scope, asked):
            asking = self._asking.get(scope)
            row = await (self._ask(claim, scope) if asking is None else _shared(asking))
            if row is None or not row.under_way or row.arguments_digest != asked:
                return row
        return await self._watch.change(scope, asked)

    async def _ask(self, claim: Claim, scope: Scope) -> Row | None:
        """Ask for the key. Whoever wants the same one at the same time in this process hears the answer too, and asks nothing."""
        answer: asyncio.Future[Row | None] = asyncio.get_running_loop().create_future()
        self._asking[scope] = answer
        try:
            async with self._doors:
                row = await self._seize(claim)
        except BaseException as error:
            if isinstance(error, MeshError):
                answer.set_exception(error)
                answer.exception()
            else:
                answer.set_result(None)
            raise
        finally:
            del self._asking[scope]
        answer.set_result(None if row is None else row._replace(ours=False))
        return row

    async def _seize(self, claim: Claim) -> Row | None:
        since = time.monotonic()
        row = await self._rows.seize(claim, self._lease)
        if row is not None and row.ours:
            self._leases.begin(claim, since)
        return row

    def _judged(self, claim: Claim, row: Row | None) -> ClaimOutcome | _Found:
        if row is None:
            return _Found.UNDER_WAY
        if row.arguments_digest != claim.arguments_digest:
            raise errors.key_conflict()
        if row.ours:
            return self._taken(claim, row)
        return _Found.UNDER_WAY if row.under_way else self._ended(claim, row)

    def _taken(self, claim: Claim, row: Row) -> ClaimOutcome | _Found:
        runs = tuple(row.doubted.split())
        if not runs or (claim.repeatable and len(runs) < MOST_RUNS):
            return _Found.OURS
        return UnresolvedClaim(runs[0], errors.outcome_unknown(runs[0]), runs)

    def _sealed(self, claim: Claim, outcome: Result | MeshError) -> bytes:
        message = envelope(outcome) if isinstance(outcome, MeshError) else envelope_of(outcome)
        return self._seal.seal(message.SerializeToString(), _place(claim, claim.invocation_id))

    def _ended(self, claim: Claim, row: Row) -> ClaimOutcome:
        """Return how the first call ended. It did end, so where that cannot be read any more nothing is repeated."""
        try:
            message = self._seal.open((row.error or row.result) or b"", _place(claim, row.invocation_id))
        except SealError:
            raise errors.outcome_unknown(row.invocation_id) from None
        if row.state == FAILED:
            return ClaimOutcome(row.invocation_id, from_envelope(ErrorEnvelope.FromString(message)))
        return ClaimOutcome(row.invocation_id, result_of(ResultEnvelope.FromString(message)))

    @contextmanager
    def _letting_go(self, claim: Claim) -> Iterator[None]:
        """Hold the key no longer once the table has heard why. While it cannot hear, or does not in time, the key stays held for as long
        as anybody remembers the claim: whoever means to say it again must not be taken for dead meanwhile."""
        try:
            yield
        except (MeshError, asyncio.CancelledError):
            raise
        except Exception:
            self._let_go(claim)
            raise
        self._let_go(claim)

    def _let_go(self, claim: Claim) -> None:
        self._leases.end(claim)
        self._watch.nudge(scope_of(claim))


async def _shared(asking: asyncio.Future[Row | None]) -> Row | None:
    """Hear what another call's question is answered with; its failure as one's own."""
    try:
        return await asyncio.shield(asking)
    except MeshError as error:
        raise MeshError(error.reason, retry_after=error.retry_after) from error


def _place(claim: Claim, invocation_id: str) -> str:
    """What a stored ending is bound to: no row's ending can be passed off as another's."""
    return dump([*scope_of(claim), claim.arguments_digest, invocation_id]).decode()
