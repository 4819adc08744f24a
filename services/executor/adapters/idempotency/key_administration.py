"""Idempotency keys in PostgreSQL, for operators: listing, reading and settling."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import case, delete, func, insert, literal, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sealing import Seal
from libs.common.sql.engine import separately, transaction
from services.executor.adapters.idempotency.claim_rows import RUNNING, SUCCEEDED
from services.executor.adapters.idempotency.outcome_context import outcome_context
from services.executor.adapters.tables import claims, outbox
from services.executor.convert.invocation import envelope_of
from services.executor.domain.idempotency.stored_key import KeyFilter, KeyState, StoredKey
from services.executor.domain.model import Record, Result

_PREFIX = "keys/"
_LAPSED = (claims.c.state == RUNNING) & (claims.c.lease_until <= func.now())
_STATE = case((_LAPSED, literal(KeyState.UNRESOLVED.value)), else_=claims.c.state).label("shown_state")
_COLUMNS = (
    claims.c.key_id,
    claims.c.tenant,
    claims.c.tool,
    claims.c.subject,
    claims.c.session,
    claims.c.key,
    _STATE,
    claims.c.invocation_id,
    claims.c.doubted,
    claims.c.arguments_digest,
    claims.c.create_time,
    claims.c.expire_time,
)
# The settled outcome must not have changed since it was shown, and no call may hold the key.
_UNSETTLED = _LAPSED | (claims.c.state == KeyState.UNKNOWN.value)


class PostgresKeys:
    """Reads keys and settles those whose outcome is unknown."""

    def __init__(self, engine: AsyncEngine, seal: Seal, encode: Callable[[Record], bytes]) -> None:
        self._engine, self._seal, self._encode = engine, seal, encode

    async def page(self, wanted: KeyFilter, after: tuple[datetime, str] | None, limit: int) -> list[StoredKey]:
        """Return keys, the newest first, that come after a key."""
        query = select(*_COLUMNS).where(claims.c.expire_time > func.now(), _STATE.in_(wanted.states))
        for column, value in (
            (claims.c.tool, wanted.tool),
            (claims.c.subject, wanted.subject),
            (claims.c.key, wanted.key),
        ):
            if value:
                query = query.where(column == value)
        if wanted.tenant is not None:
            query = query.where(claims.c.tenant == wanted.tenant)
        if not {KeyState.SUCCEEDED, KeyState.FAILED} & set(wanted.states):
            # The condition of the index of unsettled keys, which are few among many.
            query = query.where(claims.c.state.in_((RUNNING, KeyState.UNKNOWN.value)))
        if after is not None:
            created, name = after
            query = query.where(tuple_(claims.c.create_time, claims.c.key_id) < (created, name.removeprefix(_PREFIX)))
        query = query.order_by(claims.c.create_time.desc(), claims.c.key_id.desc()).limit(limit)
        async with separately(self._engine) as connection:
            return [_stored_key(row) for row in await connection.execute(query)]

    async def get(self, name: str, tenant: str | None) -> StoredKey | None:
        """Return a key; None if it expired or belongs to another tenant."""
        query = select(*_COLUMNS).where(
            claims.c.key_id == name.removeprefix(_PREFIX), claims.c.expire_time > func.now()
        )
        if tenant is not None:
            query = query.where(claims.c.tenant == tenant)
        async with separately(self._engine) as connection:
            row = (await connection.execute(query.limit(1))).first()
            return None if row is None else _stored_key(row)

    async def settle(self, key: StoredKey, result: Result | None, record: Record) -> bool:
        """Store the result, or delete the key if there is none; with the record, which the outbox delivers.

        Returns False, and changes nothing, if the key changed meanwhile.
        """
        async with transaction(self._engine) as connection:
            changed = await connection.execute(self._statement(key, result))
            if changed.rowcount != 1:
                return False
            row = {"record_id": record.record_id, "fragment": self._encode(record)}
            await connection.execute(insert(outbox).values(row))
            return True

    def _statement(self, key: StoredKey, result: Result | None) -> Any:
        this = (
            claims.c.tenant == key.tenant,
            claims.c.tool == key.tool,
            claims.c.subject == key.subject,
            claims.c.session == key.session,
            claims.c.key == key.key,
            claims.c.invocation_id == key.invocation_id,
            _UNSETTLED,
        )
        if result is None:
            return delete(claims).where(*this)
        scope = (key.tenant, key.tool, key.subject, key.session, key.key)
        context = outcome_context(scope, key.arguments_digest, key.invocation_id)
        sealed = self._seal.seal(envelope_of(result).SerializeToString(), context)
        return (
            update(claims)
            .where(*this)
            .values(
                state=SUCCEEDED, result=sealed, error=None, record_id="", record=None, prepared=None, prepared_by=""
            )
        )


def _stored_key(row: Any) -> StoredKey:
    state = KeyState(row.shown_state)
    former = tuple(row.doubted.split())
    unresolved = (*former, row.invocation_id) if state is KeyState.UNRESOLVED else former
    return StoredKey(
        name=_PREFIX + row.key_id,
        tenant=row.tenant,
        tool=row.tool,
        subject=row.subject,
        session=row.session,
        key=row.key,
        state=state,
        invocation_id=row.invocation_id,
        unresolved=unresolved or ((row.invocation_id,) if state is KeyState.UNKNOWN else ()),
        arguments_digest=row.arguments_digest,
        created=row.create_time,
        expires=row.expire_time,
    )
