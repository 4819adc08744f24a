"""Policy sets in PostgreSQL. Sets are immutable; the last row of an append-only history is the active one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, insert, select
from sqlalchemy import text as sql
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from libs.audit_client.act import ActKind
from libs.audit_client.outbox import ActRecorder
from libs.common.sql.engine import separately, transaction
from services.authz.adapters.postgres.acts import policy_activated, policy_put
from services.authz.adapters.postgres.feed import append_invalidation
from services.authz.adapters.postgres.tables import activations, policy_documents, policy_sets
from services.authz.domain.policies.errors import active_set_mismatch, no_previous_set, set_not_found
from services.authz.domain.policies.model import Documents, NewPolicySet, StoredPolicySet

# Serializes writers, so that numbers have no gaps and the history has no forks.
_LOCK_WRITERS = sql("select pg_advisory_xact_lock(hashtextextended('toolmesh authz policy sets', 0))")
KIND = "policy_set"


class PostgresPolicySets:
    """The stored policy sets and the history of activations."""

    def __init__(self, engine: AsyncEngine, acts: ActRecorder) -> None:
        self._engine, self._acts = engine, acts

    async def put(self, new: NewPolicySet) -> StoredPolicySet:
        async with transaction(self._engine) as connection:
            await connection.execute(_LOCK_WRITERS)
            return await self._put(connection, new)

    async def seed(self, new: NewPolicySet) -> bool:
        """Store and activate the first set if there is none; of several replicas that start together, one does it."""
        async with transaction(self._engine) as connection:
            await connection.execute(_LOCK_WRITERS)
            if await _active(connection) is not None:
                return False
            stored = await self._put(connection, new)
            await _append(connection, stored.number, None, new.put_by, new.put_time)
            await self._record_activation(connection, ActKind.POLICY_ACTIVATED, stored, None, new.put_time)
        return True

    async def find(self, number: int) -> StoredPolicySet | None:
        async with separately(self._engine) as connection:
            return await _find(connection, policy_sets.c.number == number)

    async def find_version(self, version: str) -> StoredPolicySet | None:
        """Return the set with this digest."""
        async with separately(self._engine) as connection:
            return await _find(connection, policy_sets.c.version == version)

    async def active(self) -> StoredPolicySet | None:
        async with separately(self._engine) as connection:
            current = await _active(connection)
            return None if current is None else await _find(connection, policy_sets.c.number == current.set_number)

    async def active_version(self) -> str:
        """Return the version of the active set; empty when there is none yet."""
        last = select(policy_sets.c.version).join(activations, activations.c.set_number == policy_sets.c.number)
        async with separately(self._engine) as connection:
            result = await connection.execute(last.order_by(activations.c.sequence.desc()).limit(1))
            return result.scalar_one_or_none() or ""

    async def page(self, before: int | None, size: int) -> list[StoredPolicySet]:
        async with separately(self._engine) as connection:
            current = await _active(connection)
            query = _sets().order_by(policy_sets.c.number.desc()).limit(size)
            if before is not None:
                query = query.where(policy_sets.c.number < before)
            rows = (await connection.execute(query)).all()
        return [_stored(row, {}, current) for row in rows]

    async def activate(self, number: int, expected: int | None, by: str, now: datetime) -> StoredPolicySet:
        async with transaction(self._engine) as connection:
            await connection.execute(_LOCK_WRITERS)
            current = await _active(connection)
            _expect(current, expected)
            if await _find(connection, policy_sets.c.number == number) is None:
                raise set_not_found(f"policySets/{number}")
            changes = current is None or current.set_number != number
            if changes:
                await _append(connection, number, current.sequence if current else None, by, now)
            stored = await _find(connection, policy_sets.c.number == number)
            if changes and stored is not None:
                await self._record_activation(connection, ActKind.POLICY_ACTIVATED, stored, current, now)
        assert stored is not None
        return stored

    async def previous(self) -> StoredPolicySet | None:
        async with separately(self._engine) as connection:
            current = await _active(connection)
            activation = await _activation(connection, current.previous) if current is not None else None
            return (
                None if activation is None else await _find(connection, policy_sets.c.number == activation.set_number)
            )

    async def roll_back(self, expected: int | None, by: str, now: datetime) -> StoredPolicySet:
        async with transaction(self._engine) as connection:
            await connection.execute(_LOCK_WRITERS)
            current = await _active(connection)
            _expect(current, expected)
            previous = await _activation(connection, current.previous) if current is not None else None
            if previous is None:
                raise no_previous_set()
            # The next rollback leads to the set before that one, not back to the current one.
            await _append(connection, previous.set_number, previous.previous, by, now)
            stored = await _find(connection, policy_sets.c.number == previous.set_number)
            assert stored is not None
            await self._record_activation(connection, ActKind.POLICY_ROLLED_BACK, stored, current, now)
        return stored

    async def _put(self, connection: AsyncConnection, new: NewPolicySet) -> StoredPolicySet:
        known = await _find(connection, policy_sets.c.version == new.version)
        if known is not None:
            return known
        current = await _active(connection)
        active = await _find(connection, policy_sets.c.number == current.set_number) if current is not None else None
        stored = await _insert_set(connection, new)
        act = policy_put(new, stored.number, active.version if active is not None else "")
        await connection.execute(self._acts.insertion(act))
        return stored

    async def _record_activation(
        self,
        connection: AsyncConnection,
        kind: ActKind,
        stored: StoredPolicySet,
        current: Row[Any] | None,
        now: datetime,
    ) -> None:
        before = await _find(connection, policy_sets.c.number == current.set_number) if current is not None else None
        await connection.execute(self._acts.insertion(policy_activated(kind, stored, before, now)))


def _expect(current: Row[Any] | None, expected: int | None) -> None:
    number = current.set_number if current is not None else None
    if expected is not None and expected != number:
        raise active_set_mismatch(f"policySets/{expected}", f"policySets/{number}" if number else "")


async def _insert_set(connection: AsyncConnection, new: NewPolicySet) -> StoredPolicySet:
    number = (await connection.execute(select(func.coalesce(func.max(policy_sets.c.number), 0) + 1))).scalar_one()
    row = {
        "number": number,
        "version": new.version,
        "policy_count": new.policy_count,
        "comment": new.comment,
        "put_by": new.put_by,
        "put_at": new.put_time,
    }
    await connection.execute(insert(policy_sets).values(row))
    texts = [{"set_number": number, "name": name, "text": content} for name, content in new.documents.items()]
    await connection.execute(insert(policy_documents), texts)
    return StoredPolicySet(
        number, new.version, dict(new.documents), new.policy_count, new.comment, new.put_by, new.put_time
    )


async def _append(connection: AsyncConnection, number: int, previous: int | None, by: str, now: datetime) -> None:
    last = (await connection.execute(select(func.coalesce(func.max(activations.c.sequence), 0) + 1))).scalar_one()
    row = {"sequence": last, "set_number": number, "previous": previous, "activated_by": by, "activated_at": now}
    await connection.execute(insert(activations).values(row))
    await append_invalidation(connection, KIND)


async def _active(connection: AsyncConnection) -> Row[Any] | None:
    query = select(activations).order_by(activations.c.sequence.desc()).limit(1)
    return (await connection.execute(query)).one_or_none()


async def _activation(connection: AsyncConnection, sequence: int | None) -> Row[Any] | None:
    query = select(activations).where(activations.c.sequence == sequence)
    return (await connection.execute(query)).one_or_none()


def _sets() -> Any:
    last = (
        select(activations.c.set_number, func.max(activations.c.activated_at).label("activated_at"))
        .group_by(activations.c.set_number)
        .subquery()
    )
    return select(policy_sets, last.c.activated_at).outerjoin(last, last.c.set_number == policy_sets.c.number)


async def _find(connection: AsyncConnection, condition: Any) -> StoredPolicySet | None:
    row = (await connection.execute(_sets().where(condition))).one_or_none()
    if row is None:
        return None
    texts = select(policy_documents.c.name, policy_documents.c.text).where(policy_documents.c.set_number == row.number)
    rows = (await connection.execute(texts.order_by(policy_documents.c.name))).all()
    documents: Documents = {document.name: document.text for document in rows}
    return _stored(row, documents, await _active(connection))


def _stored(row: Row[Any], documents: Documents, current: Row[Any] | None) -> StoredPolicySet:
    return StoredPolicySet(
        number=row.number,
        version=row.version,
        documents=documents,
        policy_count=row.policy_count,
        comment=row.comment,
        put_by=row.put_by,
        put_time=row.put_at,
        active=current is not None and current.set_number == row.number,
        activate_time=row.activated_at,
    )
