"""The head is read once for all who ask, and never before they asked."""

from __future__ import annotations

import asyncio

import pytest

from services.audit.domain.log.shared_head import SharedHead
from services.audit.domain.merkle.merkle import CompactRange
from services.audit.domain.model import LoggedRecord, Page, RecordFilter, Span, TreeHead


class CountingLog:
    """A log whose head counts its reads; a read ends when the test allows it."""

    def __init__(self) -> None:
        self.reads, self.fails = 0, False
        self.begun, self.allowed = asyncio.Event(), asyncio.Event()
        self.allowed.set()

    async def head(self) -> TreeHead:
        self.reads += 1
        self.begun.set()
        head = TreeHead("log", CompactRange(), first_sequence=self.reads)
        await self.allowed.wait()
        if self.fails:
            raise ConnectionError
        return head

    async def page(self, record_filter: RecordFilter, span: Span, limit: int) -> Page:
        raise AssertionError("only the head is asked for here")

    async def get_by_sequence(self, log_id: str, sequence: int) -> LoggedRecord | None:
        raise AssertionError("only the head is asked for here")

    async def get_by_record_id(self, record_id: str) -> LoggedRecord | None:
        raise AssertionError("only the head is asked for here")


async def test_all_who_ask_at_once_share_a_read() -> None:
    log = CountingLog()
    heads = SharedHead(log, min_interval=0)
    await asyncio.gather(*(heads.read() for _ in range(500)))
    assert log.reads == 1


async def test_a_head_is_not_older_than_the_question() -> None:
    log = CountingLog()
    heads = SharedHead(log, min_interval=0)
    log.allowed.clear()
    first = asyncio.ensure_future(heads.read())
    await log.begun.wait()
    later = [asyncio.ensure_future(heads.read()) for _ in range(3)]
    await asyncio.sleep(0)
    log.allowed.set()
    assert (await first).first_sequence == 1
    assert [head.first_sequence for head in await asyncio.gather(*later)] == [2, 2, 2]


async def test_a_canceled_reader_and_a_failed_read_cost_the_others_nothing() -> None:
    log = CountingLog()
    heads = SharedHead(log, min_interval=0)
    readers = [asyncio.ensure_future(heads.read()) for _ in range(3)]
    await asyncio.sleep(0)
    readers[0].cancel()
    assert (await readers[1]).first_sequence == 1
    log.fails = True
    with pytest.raises(ConnectionError):
        await heads.read()
    log.fails = False
    assert (await heads.read()).first_sequence == 3
