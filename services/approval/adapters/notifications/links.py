"""Links of notifications in PostgreSQL. Only digests of their tokens are stored."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from sqlalchemy import and_, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import transaction
from services.approval.adapters.tables import ticket_links
from services.approval.domain.model import TicketLink
from services.approval.domain.notifications.notification import Notification
from services.approval.domain.notifications.ticket_link import LIFETIME
from services.approval.domain.person import Person
from services.approval.domain.ports import LinkCheck


class PostgresLinks:
    """Issues the links of messages, and notes their use."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def issue(self, notifications: Sequence[Notification]) -> list[Notification]:
        """Return the notifications, each with a link of its own. Deletes old ones."""
        linked = [replace(each, link_token=secrets.token_hex(32)) for each in notifications]
        rows = [
            {
                "token_digest": _digest(each.link_token),
                "ticket_id": each.ticket.ticket_id,
                "approver_group": each.group,
                "expire_time": func.clock_timestamp() + LIFETIME,
            }
            for each in linked
        ]
        async with transaction(self._engine) as connection:
            await connection.execute(insert(ticket_links).values(rows))
            # A day later also an expired link is unknown.
            old = ticket_links.c.expire_time < func.clock_timestamp() - 24 * LIFETIME
            await connection.execute(delete(ticket_links).where(old))
        return linked

    async def use(self, ticket_id: str, token: str, person: Person, check: LinkCheck) -> bool:
        of_ticket = and_(ticket_links.c.token_digest == _digest(token), ticket_links.c.ticket_id == ticket_id)
        found = select(ticket_links, func.clock_timestamp().label("now")).where(of_ticket).with_for_update()
        async with transaction(self._engine) as connection:
            row = (await connection.execute(found)).first()
            if row is None:
                return False
            check(TicketLink(row.approver_group, row.expire_time, tuple(row.used_by)), row.now)
            used_by = func.array_append(ticket_links.c.used_by, person.subject)
            await connection.execute(update(ticket_links).where(of_ticket).values(used_by=used_by))
        return True


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()
