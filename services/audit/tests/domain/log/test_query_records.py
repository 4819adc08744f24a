"""QueryRecords through the service."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.common.v1 import caller_pb2

from libs.common.errors import Reason
from services.audit.tests.replicas import Replica, every_page, reason_of, reply
from services.audit.tests.sample import a_record, stamp

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


async def ids(stub: Any, ascending: bool = True, **terms: Any) -> list[str]:
    """Return the record ids that a filter finds."""
    found = []
    async for page in every_page(stub, filter=pb.RecordFilter(**terms), ascending=ascending, page_size=2):
        found += [logged.record.record_id for logged in page]
    return found


async def test_each_filter_narrows_to_what_it_says(audit: Replica) -> None:
    day = timedelta(days=1)
    distinct: dict[str, dict[str, Any]] = {
        "subject": {"caller": caller_pb2.Caller(subject="did:web:alice")},
        "tool_prefix": {"tool_version": "tools/acme.send_email/versions/1.2.3"},
        "trace_id": {"trace_id": "f" * 32},
        "invocation_id": {"invocation_id": "invocation-1"},
        "authorization": {"authorization": record_pb.AUTHORIZATION_OUTCOME_DENY},
        "status": {"status": record_pb.RECORD_STATUS_TIMEOUT},
        "ticket": {"ticket": "tickets/1"},
        "time": {"event_time": stamp(LONG_AGO)},
    }
    records = {name: a_record(**changes) for name, changes in distinct.items()}
    await audit.append(*records.values(), a_record())
    questions: dict[str, dict[str, Any]] = {
        "subject": {"subject": "did:web:alice"},
        "tool_prefix": {"tool_prefix": "tools/acme.send_"},
        "trace_id": {"trace_id": "f" * 32},
        "invocation_id": {"invocation_id": "invocation-1"},
        "authorization": {"authorization": record_pb.AUTHORIZATION_OUTCOME_DENY},
        "status": {"status": record_pb.RECORD_STATUS_TIMEOUT},
        "ticket": {"ticket": "tickets/1"},
        "time": {"from_time": stamp(LONG_AGO), "to_time": stamp(LONG_AGO + day)},
    }
    operator = audit.stub("operator")
    for name, terms in questions.items():
        assert await ids(operator, **terms) == [records[name].record_id]
    assert await ids(operator, subject="did:web:alice", ticket="tickets/1") == []
    assert await ids(operator, to_time=stamp(LONG_AGO)) == []
    assert len(await ids(operator)) == 9


async def test_a_prefix_is_not_a_pattern(audit: Replica) -> None:
    await audit.append(a_record(tool_version="tools/core.echo/versions/1.0.0"))
    assert await ids(audit.stub("operator"), tool_prefix="tools/core%") == []
    assert await ids(audit.stub("operator"), tool_prefix="tools/core_echo") == []


@pytest.mark.parametrize("ascending", [True, False])
async def test_pages_stay_as_they_were_while_others_append(audit: Replica, ascending: bool) -> None:
    before = [a_record() for _ in range(7)]
    await audit.append(*before)
    seen, sizes = [], []
    async for page in every_page(audit.stub("operator"), page_size=3, ascending=ascending):
        seen += [logged.sequence for logged in page]
        sizes.append(len(page))
        await audit.append(a_record(), a_record())
    assert seen == (list(range(7)) if ascending else list(range(6, -1, -1)))
    assert sizes == [3, 3, 1]


async def test_newest_comes_first_unless_asked_otherwise(audit: Replica) -> None:
    await audit.append(*(a_record() for _ in range(3)))
    page = await reply(audit.stub("operator").QueryRecords(pb.QueryRecordsRequest()))
    assert [logged.sequence for logged in page.records] == [2, 1, 0]
    assert page.next_page_token == ""


async def test_a_page_token_of_another_query_is_refused(audit: Replica) -> None:
    await audit.append(*(a_record() for _ in range(3)))
    operator = audit.stub("operator")
    token = (await reply(operator.QueryRecords(pb.QueryRecordsRequest(page_size=1)))).next_page_token
    body = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    forged = base64.urlsafe_b64encode(orjson.dumps([body[0], [0, 2**64 - 1]])).decode()
    for request in (
        pb.QueryRecordsRequest(page_token=token, ascending=True),
        pb.QueryRecordsRequest(page_token=token, filter=pb.RecordFilter(ticket="tickets/1")),
        pb.QueryRecordsRequest(page_token="nonsense"),
        pb.QueryRecordsRequest(page_token=forged),
    ):
        assert await reason_of(reply(operator.QueryRecords(request))) is Reason.PAGE_TOKEN_INVALID
    page = await reply(operator.QueryRecords(pb.QueryRecordsRequest(page_size=2, page_token=token)))
    assert [logged.sequence for logged in page.records] == [1, 0]


async def test_a_page_of_large_records_is_cut_so_that_it_fits_into_a_message(audit: Replica) -> None:
    large = [a_record(side_effects=["x" * 400_000]) for _ in range(8)]
    for record in large:
        await audit.append(record)
    sizes, seen = [], []
    async for page in every_page(audit.stub("operator"), page_size=1000, ascending=True):
        sizes.append(len(page))
        seen += [logged.record.record_id for logged in page]
    assert seen == [record.record_id for record in large]
    assert max(sizes) < len(large)
