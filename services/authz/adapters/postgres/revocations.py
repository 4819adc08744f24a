"""Revocations in PostgreSQL, each with its sequence number in the feed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Row, func, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.audit_client.outbox import ActRecorder
from libs.common.sql.engine import separately, transaction
from services.authz.adapters.postgres.acts import revoked
from services.authz.adapters.postgres.feed import append_invalidation
from services.authz.adapters.postgres.tables import feed_head, issued_tokens, revocations
from services.authz.domain.model import Revocation, RevocationTarget, TokenRecord

KIND = "revocation"


class PostgresRevocations:
    """Stores revocations and appends each to the feed."""

    def __init__(self, engine: AsyncEngine, acts: ActRecorder) -> None:
        self._engine, self._acts = engine, acts

    async def find_token(self, token_id: str) -> TokenRecord | None:
        tokens = issued_tokens.c
        parents = select(tokens.jti, tokens.parent_jti, tokens.expires_at, tokens.tenant)
        chain = parents.where(tokens.jti == token_id).cte(recursive=True)
        chain = chain.union(parents.join(chain, tokens.jti == chain.c.parent_jti))
        async with separately(self._engine) as connection:
            rows = {row.jti: row for row in await connection.execute(select(chain))}
        if token_id not in rows:
            return None
        row = rows[token_id]
        return TokenRecord(token_id, row.expires_at, frozenset(rows) - {token_id}, row.tenant)

    async def last_issued(self, subject: str) -> datetime | None:
        holder = or_(issued_tokens.c.subject == subject, issued_tokens.c.agent == subject)
        wanted = select(func.max(issued_tokens.c.issued_at)).where(holder)
        async with separately(self._engine) as connection:
            return cast(datetime | None, (await connection.execute(wanted)).scalar_one())

    async def signed_with(self, key_id: str) -> bool:
        wanted = select(issued_tokens.c.jti).where(issued_tokens.c.kid == key_id).limit(1)
        async with separately(self._engine) as connection:
            return (await connection.execute(wanted)).first() is not None

    async def find(self, target: RevocationTarget) -> Revocation | None:
        wanted = (
            select(revocations)
            .where(revocations.c.target_kind == target.kind, revocations.c.target == target.value)
            .where(revocations.c.expires_at > func.now())
            .order_by(revocations.c.sequence.desc())
            .limit(1)
        )
        async with separately(self._engine) as connection:
            row = (await connection.execute(wanted)).one_or_none()
        return None if row is None else revocation_of(row)

    async def add(self, revocation: Revocation) -> Revocation:
        values = {
            "target_kind": revocation.target.kind,
            "target": revocation.target.value,
            "reason": revocation.reason,
            "revoked_by": revocation.revoked_by,
            "revoked_at": revocation.revoked_at,
            "expires_at": revocation.expires_at,
            "tenant": revocation.tenant,
        }
        async with transaction(self._engine) as connection:
            sequence = await append_invalidation(connection, KIND)
            await connection.execute(self._acts.insertion(revoked(revocation)))
            added = insert(revocations).values(sequence=sequence, **values).returning(*revocations.c)
            return revocation_of((await connection.execute(added)).one())

    async def page(self, *, before: int | None, limit: int, now: datetime, tenant: str = "") -> Sequence[Revocation]:
        wanted = select(revocations).where(revocations.c.expires_at > now)
        if tenant:
            wanted = wanted.where(revocations.c.tenant == tenant)
        if before is not None:
            wanted = wanted.where(revocations.c.sequence < before)
        async with separately(self._engine) as connection:
            rows = await connection.execute(wanted.order_by(revocations.c.sequence.desc()).limit(limit))
            return [revocation_of(row) for row in rows]

    async def head(self) -> int:
        """Return the last sequence number of the feed."""
        async with separately(self._engine) as connection:
            return cast(int, (await connection.execute(select(feed_head.c.sequence))).scalar_one())

    async def since(self, sequence: int, now: datetime) -> Sequence[Revocation]:
        """Return unexpired revocations after a sequence number, in feed order."""
        wanted = (
            select(revocations)
            .where(revocations.c.sequence > sequence, revocations.c.expires_at > now)
            .order_by(revocations.c.sequence)
        )
        async with separately(self._engine) as connection:
            return [revocation_of(row) for row in await connection.execute(wanted)]


def revocation_of(row: Row[Any]) -> Revocation:
    """Parse a row."""
    return Revocation(
        row.sequence,
        RevocationTarget(row.target_kind, row.target),
        row.reason,
        row.revoked_by,
        row.revoked_at,
        row.expires_at,
        row.tenant,
    )
