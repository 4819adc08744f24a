"""The ledger of issued tokens in PostgreSQL."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from services.authz.adapters.postgres.tables import issued_tokens
from services.authz.domain.model import LedgerEntry


class PostgresLedger:
    """A Ledger that commits each entry."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def record(self, entry: LedgerEntry) -> None:
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
            await connection.execute(issued_tokens.insert(), row)
