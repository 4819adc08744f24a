"""The ledger of issued tokens in PostgreSQL."""

from __future__ import annotations

from sqlalchemy import bindparam, insert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.audit_client.outbox import ActRecorder, act_outbox
from libs.common.sql.engine import separately
from services.authz.adapters.postgres.acts import token_minted
from services.authz.adapters.postgres.tables import issued_tokens
from services.authz.domain.model import LedgerEntry

# One statement for both rows: they are durable together, after one round trip. Built once, which is most of its cost.
_ACT = insert(act_outbox).values(record_id=bindparam("record_id"), form=bindparam("form")).cte("act")
_RECORD = (
    insert(issued_tokens)
    .values({column.name: bindparam(column.name, type_=column.type) for column in issued_tokens.c})
    .add_cte(_ACT)
)


class PostgresLedger:
    """A Ledger that commits each entry, with its act."""

    def __init__(self, engine: AsyncEngine, acts: ActRecorder) -> None:
        self._engine, self._acts = engine, acts

    async def record(self, entry: LedgerEntry) -> None:
        self._acts.admit()
        row = {
            "jti": entry.token_id,
            "subject": entry.subject,
            "tier": entry.tier,
            "issued_at": entry.issued_at,
            "expires_at": entry.expires_at,
            "kid": entry.key_id,
            "scopes": list(entry.scopes),
            "tools": [{"tool": grant.tool, "version": grant.version_constraint} for grant in entry.tools],
            "agent": entry.agent,
            "parent_jti": entry.parent_id,
            "root_jti": entry.root_id or entry.token_id,
            "tenant": entry.tenant,
        }
        async with separately(self._engine) as connection:
            await connection.execute(_RECORD, {**row, **self._acts.row(token_minted(entry))})
