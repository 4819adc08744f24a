"""The change feed, against a real database."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.audit_client.act import ActEncoder
from libs.audit_client.outbox import ActRecorder
from libs.common.sql.engine import transaction
from libs.common.telemetry.log import Log
from services.approval.adapters import ticket_feed
from services.approval.adapters.postgres_tickets import PostgresTickets, TicketChangePage
from services.approval.adapters.ticket_feed import TicketFeed
from services.approval.domain.lifecycle.create_ticket import new_ticket
from services.approval.domain.model import Ticket
from services.approval.domain.ports import ChangeCursor
from services.approval.domain.rules import ApprovalRules
from services.approval.tests.drafts import draft


def make(now: datetime) -> Ticket:
    return new_ticket(draft(arguments_digest=f"sha256:{now.timestamp()}"), ApprovalRules(), now)


async def test_more_changes_of_one_moment_than_a_batch_holds_are_all_read(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticket_feed, "BATCH", 3)
    monkeypatch.setattr(ticket_feed, "POLL_SECONDS", 0.01)
    tickets = PostgresTickets(engine, ActRecorder(ActEncoder("approval")))
    feed = TicketFeed(tickets, Log("approval", level="error"))

    missing = {(await tickets.add(make))[0].ticket_id for _ in range(10)}
    # Later than the feed begins, however long that takes.
    async with transaction(engine) as connection:
        await connection.execute(text("update tickets set update_time = now() + interval '1 hour'"))
    await feed.start()
    async with asyncio.timeout(60):
        async for changed in feed.follow(lambda: None):
            missing -= {ticket.ticket_id for ticket in changed}
            if not missing:
                break
    await feed.stop()


async def test_a_burst_is_not_read_again_and_again(engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticket_feed, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(ticket_feed, "OVERLAP", timedelta(seconds=0.2))
    pages: list[int] = []

    class CountedTickets(PostgresTickets):
        async def changed_since(self, after: ChangeCursor | None, limit: int) -> TicketChangePage:
            page = await super().changed_since(after, limit)
            pages.append(len(page.revisions))
            return page

    tickets = CountedTickets(engine, ActRecorder(ActEncoder("approval")))
    feed = TicketFeed(tickets, Log("approval", level="error"))
    await feed.start()
    await tickets.add(make)
    async with asyncio.timeout(60):
        # Read, and no longer read once its time is behind, although nothing follows it.
        while not (any(pages) and pages[-1] == 0):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await feed.stop()
