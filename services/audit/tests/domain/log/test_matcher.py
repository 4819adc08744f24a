"""A filter matches in memory what it matches in the database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.common.v1 import caller_pb2

from libs.common.sql.engine import engine_for
from services.audit.adapters.log.reader import PostgresReader
from services.audit.domain.log.append_buffer import AppendBuffer, AppendBufferReader
from services.audit.domain.log.matcher import Matcher
from services.audit.domain.model import RecordFilter, Span
from services.audit.tests.conftest import a_writer
from services.audit.tests.sample import an_entry

ENTRIES = [
    an_entry(caller=caller_pb2.Caller(subject="did:web:a", tenant="acme"), trace_id="a" * 32, invocation_id="i"),
    an_entry(caller=caller_pb2.Caller(subject="did:web:b", tenant="globex"), ticket="tickets/1"),
    an_entry(tool_version="tools/acme.x/versions/2.0.0", status=record_pb.RECORD_STATUS_ERROR),
    an_entry(authorization=record_pb.AUTHORIZATION_OUTCOME_DENY, arguments_summary=b'{"tenant":"acme"}'),
]
MIDDLE = ENTRIES[2].event_time
FILTERS = [
    RecordFilter(),
    RecordFilter(subject="did:web:a"),
    RecordFilter(tenant="acme"),
    RecordFilter(tenant="nobody"),
    RecordFilter(trace_id="a" * 32),
    RecordFilter(invocation_id="i"),
    RecordFilter(ticket="tickets/1"),
    RecordFilter(tool_prefix="tools/acme."),
    RecordFilter(status="error"),
    RecordFilter(authorization="deny"),
    RecordFilter(from_time=MIDDLE),
    RecordFilter(to_time=MIDDLE),
    RecordFilter(from_time=MIDDLE - timedelta(days=1), to_time=MIDDLE + timedelta(days=1), tenant="acme"),
]


@pytest.fixture
async def readers(log_url: str) -> AsyncIterator[tuple[AppendBufferReader, PostgresReader]]:
    """The same log from memory and from the database."""
    engine, writer, buffer = engine_for(log_url, schema="audit"), a_writer(log_url), AppendBuffer()
    await writer.start()
    commit = (await writer.append(ENTRIES)).commit
    assert commit is not None
    buffer.add(commit)
    stored = PostgresReader(engine)
    yield AppendBufferReader(stored, buffer), stored
    await writer.stop()
    await engine.dispose()


async def test_memory_and_database_return_the_same_pages(readers: tuple[AppendBufferReader, PostgresReader]) -> None:
    buffered, stored = readers
    for record_filter in FILTERS:
        for limit in (1, 2, 10):
            span = Span(0, len(ENTRIES), ascending=True)
            assert await buffered.page(record_filter, span, limit) == await stored.page(record_filter, span, limit)


def test_a_filter_of_all_fields_matches_only_what_has_them_all() -> None:
    both = RecordFilter(subject="did:web:a", trace_id="a" * 32)
    assert [Matcher(both).matches(entry) for entry in ENTRIES] == [True, False, False, False]
    assert not any(Matcher(RecordFilter(subject="did:web:a", ticket="tickets/1")).matches(entry) for entry in ENTRIES)
