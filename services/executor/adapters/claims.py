"""Idempotency keys in PostgreSQL: one row decides who runs, also between replicas and after a crash.

What a call answered may hold anything, so it is stored sealed: the database, its backups and whoever reads them see none of it.
Time is the database's own, so that replicas whose clocks differ still agree on when a lease has run out.
"""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from enum import Enum
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, literal_column, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from toolmesh.common.v1.error_reason_pb2 import ErrorEnvelope
from toolmesh.executor.v1.result_envelope_pb2 import ResultEnvelope

from libs.common.errors import MeshError
from libs.common.jsonio import dump
from libs.common.rpc.status import envelope, from_envelope
from libs.common.sealing import Seal, SealError
from libs.common.sql.engine import transaction
from services.executor.adapters.tables import claims
from services.executor.convert import envelope_of, result_of
from services.executor.domain import errors
from services.executor.domain.model import Claim, Settled

RUNNING, SUCCEEDED, FAILED = "running", "succeeded", "failed"
_KEY = (claims.c.tool, claims.c.subject, claims.c.session, claims.c.key)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
_SWEEP_ROWS = 1000

Scope = tuple[str, str, str, str]


class _Found(Enum):
    """What a look at a key showed when it showed no ending."""

    OURS = "ours"
    UNDER_WAY = "under way"


class PostgresClaims:
    """The memory of idempotency keys."""

    def __init__(self, engine: AsyncEngine, owner: str, seal: Seal) -> None:
        self._engine, self._owner, self._seal = engine, owner, seal
        self._watches: dict[Scope, asyncio.Task[None]] = {}

    async def acquire(self, claim: Claim, *, within: float) -> Settled | None:
        """Hold the key, or return what the first call with it ended in, waiting for it where it is under way."""
        try:
            async with asyncio.timeout(within):
                while (found := await self._attempt(claim)) is _Found.UNDER_WAY:
                    await self._until_settled(claim)
        except TimeoutError:
            raise errors.deadline_exceeded() from None
        return found if isinstance(found, Settled) else None

    async def settle(self, claim: Claim, settled: Settled) -> None:
        """Keep how the call ended. Has no effect when the key was taken over meanwhile."""
        if isinstance(settled.outcome, MeshError):
            state, column, message = FAILED, "error", envelope(settled.outcome).SerializeToString()
        else:
            state, column, message = SUCCEEDED, "result", envelope_of(settled.outcome).SerializeToString()
        ended = {"state": state, column: self._seal.seal(message, _place(claim, claim.invocation_id))}
        statement = update(claims).where(_held(claim)).values(**ended, expire_time=_from_now(claim.window))
        async with transaction(self._engine) as connection:
            await connection.execute(statement)

    async def release(self, claim: Claim) -> None:
        """Give the key back, if this call still holds it."""
        async with transaction(self._engine) as connection:
            await connection.execute(delete(claims).where(_held(claim)))

    async def sweep(self) -> int:
        """Forget keys whose window is over, a bounded number at a time; return how many."""
        place: ColumnElement[Any] = literal_column("ctid")
        old = select(place).select_from(claims).where(claims.c.expire_time <= func.now()).limit(_SWEEP_ROWS)
        statement = delete(claims).where(place.in_(old))
        async with transaction(self._engine) as connection:
            return (await connection.execute(statement)).rowcount

    async def _attempt(self, claim: Claim) -> Settled | _Found:
        async with transaction(self._engine) as connection:
            if await self._insert(connection, claim):
                return _Found.OURS
            row = await self._look(connection, claim)
            if row is None:
                # Given back between the two statements: it is anybody's again.
                return _Found.UNDER_WAY
            if row.arguments_digest != claim.arguments_digest:
                raise errors.key_conflict()
            if row.state != RUNNING:
                return self._ended(claim, row)
            if row.leased:
                return _Found.UNDER_WAY
            if not claim.repeatable:
                raise errors.outcome_unknown(row.invocation_id)
            return _Found.OURS if await self._take_over(connection, claim, row) else _Found.UNDER_WAY

    def _ended(self, claim: Claim, row: Any) -> Settled:
        """Return how the first call ended. It did end, so where that cannot be read any more nothing is repeated."""
        sealed, place = row.error if row.state == FAILED else row.result, _place(claim, row.invocation_id)
        try:
            message = self._seal.open(sealed, place)
        except SealError:
            raise errors.outcome_unknown(row.invocation_id) from None
        if row.state == FAILED:
            return Settled(row.invocation_id, from_envelope(ErrorEnvelope.FromString(message)))
        return Settled(row.invocation_id, result_of(ResultEnvelope.FromString(message)))

    async def _insert(self, connection: AsyncConnection, claim: Claim) -> bool:
        values = {
            "arguments_digest": claim.arguments_digest,
            "invocation_id": claim.invocation_id,
            "owner": self._owner,
            "state": RUNNING,
            "lease_until": _from_now(claim.lease),
            "create_time": func.now(),
            "expire_time": _from_now(max(claim.window, claim.lease)),
        }
        scope = {"tool": claim.tool, "subject": claim.subject, "session": claim.session, "key": claim.key}
        # A row whose window is over is as good as none.
        statement = (
            insert(claims)
            .values(**scope, **values)
            .on_conflict_do_update(
                index_elements=_KEY,
                set_={**values, "result": None, "error": None},
                where=claims.c.expire_time <= func.now(),
            )
            .returning(claims.c.invocation_id)
        )
        return (await connection.execute(statement)).first() is not None

    async def _look(self, connection: AsyncConnection, claim: Claim) -> Any:
        leased = (claims.c.lease_until > func.now()).label("leased")
        return (await connection.execute(select(claims, leased).where(_scope(claim)))).first()

    async def _take_over(self, connection: AsyncConnection, claim: Claim, row: Any) -> bool:
        statement = (
            update(claims)
            .where(_scope(claim), claims.c.state == RUNNING, claims.c.invocation_id == row.invocation_id)
            .values(
                invocation_id=claim.invocation_id,
                owner=self._owner,
                lease_until=_from_now(claim.lease),
                expire_time=_from_now(max(claim.window, claim.lease)),
            )
        )
        return (await connection.execute(statement)).rowcount == 1

    async def _until_settled(self, claim: Claim) -> None:
        """Wait until the key is worth another look. However many wait in this process, one of them looks."""
        scope = (claim.tool, claim.subject, claim.session, claim.key)
        watch = self._watches.get(scope)
        if watch is None:
            watch = self._watches[scope] = asyncio.create_task(self._watch(claim))
            watch.add_done_callback(lambda done: self._watched(scope, done))
        await asyncio.shield(watch)

    def _watched(self, scope: Scope, watch: asyncio.Task[None]) -> None:
        del self._watches[scope]
        if not watch.cancelled():
            # Whoever waited has seen it; a watch that everyone left must not be reported as forgotten.
            watch.exception()

    async def _watch(self, claim: Claim) -> None:
        pause = _FIRST_PAUSE
        under_way = and_(_scope(claim), claims.c.state == RUNNING, claims.c.lease_until > func.now())
        while True:
            await asyncio.sleep(pause * random.uniform(0.7, 1.0))  # noqa: S311  (spread out, not a secret)
            async with transaction(self._engine) as connection:
                if (await connection.execute(select(claims.c.key).where(under_way))).first() is None:
                    return
            pause = min(pause * 1.6, _LONGEST_PAUSE)


def _place(claim: Claim, invocation_id: str) -> str:
    """What a stored ending is bound to: no row's ending can be passed off as another's."""
    return dump([claim.tool, claim.subject, claim.session, claim.key, claim.arguments_digest, invocation_id]).decode()


def _scope(claim: Claim) -> ColumnElement[bool]:
    wanted = (claim.tool, claim.subject, claim.session, claim.key)
    return and_(*(column == value for column, value in zip(_KEY, wanted, strict=True)))


def _held(claim: Claim) -> ColumnElement[bool]:
    return and_(_scope(claim), claims.c.invocation_id == claim.invocation_id, claims.c.state == RUNNING)


def _from_now(seconds: float) -> Any:
    return func.now() + timedelta(seconds=seconds)
