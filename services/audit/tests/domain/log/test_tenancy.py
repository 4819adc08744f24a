"""Readers with a tenant see only their tenant's records; the whole log is for readers without a tenant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import log_service_pb2 as log_pb
from toolmesh.audit.v1 import usage_service_pb2 as usage_pb
from toolmesh.common.v1 import caller_pb2

from libs.common.errors import Reason
from services.audit.tests.replicas import Replica, answer, every_page, reason_of, reply, take
from services.audit.tests.sample import a_record
from services.audit.tests.usage_replicas import until_counted, usage_stub
from services.audit.tests.usage_sample import an_ending

Bearer = Callable[[str], Any]
OURS, THEIRS = "acme", "globex"
SAYS_SO = b'{"tenant": "acme"}'
"""Arguments that look like the tenant of a caller."""


def caller(tenant: str) -> caller_pb2.Caller:
    return caller_pb2.Caller(subject=f"did:web:{tenant}", tenant=tenant)


@pytest.fixture
def bearer(signer: Any) -> Bearer:
    def metadata(tenant: str) -> Any:
        claims = {"tenant": tenant} if tenant else {}
        return (("authorization", f"Bearer {signer.mint(scope='audit:read audit:admin', **claims)}"),)

    return metadata


@pytest.fixture
async def ours(audit: Replica) -> list[str]:
    """A log of two tenants, and the ids of our tenant's records."""
    sent = [
        a_record(caller=caller(OURS if place % 2 else THEIRS), arguments_summary=SAYS_SO, trace_id="both")
        for place in range(10)
    ]
    await audit.append(*sent, a_record(arguments_summary=SAYS_SO))
    return [record.record_id for record in sent if record.caller.tenant == OURS]


@pytest.mark.parametrize("ascending", [True, False])
async def test_a_query_shows_the_callers_tenant_alone_page_by_page(
    audit: Replica, ours: list[str], bearer: Bearer, ascending: bool
) -> None:
    stub = audit.stub("edge")
    ask = stub.QueryRecords
    stub.QueryRecords = lambda request: ask(request, metadata=bearer(OURS))
    found = [
        each.record.record_id async for page in every_page(stub, page_size=3, ascending=ascending) for each in page
    ]
    assert found == (ours if ascending else ours[::-1])


async def test_no_page_of_one_tenant_is_continued_by_another(audit: Replica, ours: list[str], bearer: Bearer) -> None:
    stub = audit.stub("edge")
    page = await reply(stub.QueryRecords(pb.QueryRecordsRequest(page_size=1), metadata=bearer(OURS)))
    other = pb.QueryRecordsRequest(page_size=1, page_token=page.next_page_token)
    assert await reason_of(reply(stub.QueryRecords(other, metadata=bearer(THEIRS)))) is Reason.PAGE_TOKEN_INVALID


async def test_a_reader_without_a_tenant_sees_all_records(audit: Replica, ours: list[str], bearer: Bearer) -> None:
    for stub, how in ((audit.stub("edge"), {"metadata": bearer("")}), (audit.stub("operator"), {})):
        assert len((await reply(stub.QueryRecords(pb.QueryRecordsRequest(), **how))).records) == 11


async def test_a_record_of_another_tenant_is_not_there(audit: Replica, ours: list[str], bearer: Bearer) -> None:
    stub = audit.stub("edge")
    for sequence, record_id, _, _ in audit.stored():
        log_id = (await reply(audit.stub("operator").GetCheckpoint(pb.GetCheckpointRequest()))).checkpoint.log_id
        for name in (f"records/{record_id}", f"logs/{log_id}/records/{sequence}"):
            call = reply(stub.GetRecord(pb.GetRecordRequest(name=name), metadata=bearer(OURS)))
            if record_id in ours:
                assert (await call).record.record.record_id == record_id
            else:
                assert await reason_of(call) is Reason.NOT_FOUND


async def test_a_watch_sends_only_the_callers_tenant(audit: Replica, ours: list[str], bearer: Bearer) -> None:
    watch = audit.stub("edge").WatchRecords(pb.WatchRecordsRequest(), metadata=bearer(OURS))
    assert [each.record.record_id for each in await take(watch, len(ours))] == ours
    await audit.append(a_record(caller=caller(THEIRS)), mine := a_record(caller=caller(OURS)))
    assert (await answer(watch)).record.record.record_id == mine.record_id
    watch.cancel()


async def test_the_log_as_a_whole_is_not_a_tenants(audit: Replica, ours: list[str], bearer: Bearer) -> None:
    stub, log = audit.stub("edge"), audit.log("edge")
    whole, erasing = pb.ExportRecordsRequest(shard=0), log_pb.ErasePayloadRequest(sequence=0, reason="mine")
    for tenant, refused in ((OURS, True), ("", False)):
        calls = [
            answer(stub.ExportRecords(whole, metadata=bearer(tenant))),
            reply(log.ErasePayload(erasing, metadata=bearer(tenant))),
        ]
        for call in calls:
            if refused:
                assert await reason_of(call) is Reason.AUTHORITY_EXCEEDED
            else:
                await call


async def test_what_concerns_the_whole_log_is_not_a_tenants(audit: Replica, ours: list[str], bearer: Bearer) -> None:
    log = audit.log("edge")
    hold = log_pb.PlaceLegalHoldRequest(hold_id="case", end_sequence=3, reason="a case about globex")
    await reply(log.PlaceLegalHold(hold, metadata=bearer("")))
    reads = [
        (log.ListCheckpoints, log_pb.ListCheckpointsRequest()),
        (log.GetConsistencyProof, log_pb.GetConsistencyProofRequest(first_size=1)),
        (log.VerifyRange, log_pb.VerifyRangeRequest()),
        (log.ListShards, log_pb.ListShardsRequest()),
        (log.ListLegalHolds, log_pb.ListLegalHoldsRequest()),
    ]
    for read, request in reads:
        assert await reason_of(reply(read(request, metadata=bearer(OURS)))) is Reason.AUTHORITY_EXCEEDED
        await reply(read(request, metadata=bearer("")))


async def test_a_tenant_proves_its_own_records_and_learns_of_no_other(
    audit: Replica, ours: list[str], bearer: Bearer
) -> None:
    log = audit.log("edge")
    for sequence in range(14):
        wanted = log_pb.GetInclusionProofRequest(sequence=sequence)
        proof = log.GetInclusionProof(wanted, metadata=bearer(OURS))
        if sequence % 2 and sequence < 10:
            assert (await reply(proof)).sequence == sequence
        else:
            assert await reason_of(reply(proof)) is Reason.NOT_FOUND
    for record_id in ours:
        wanted = log_pb.GetInclusionProofRequest(record_id=record_id)
        assert (await reply(log.GetInclusionProof(wanted, metadata=bearer(OURS)))).hashes
        assert await reason_of(reply(log.GetInclusionProof(wanted, metadata=bearer(THEIRS)))) is Reason.NOT_FOUND


async def test_usage_is_that_of_the_callers_tenant(audit: Replica, pki: Any, bearer: Bearer) -> None:
    await audit.append(*(an_ending(tenant=tenant) for tenant in (OURS, THEIRS, THEIRS)))
    await until_counted(audit.url, 3)
    stub, how = usage_stub(audit, pki, "edge"), {"metadata": bearer(OURS)}
    for asked in ("", OURS, THEIRS):
        request = usage_pb.GetUsageRequest(filter=usage_pb.UsageFilter(tenant=asked))
        assert (await reply(stub.GetUsage(request, **how))).total.calls == 1
    for name in ("tools/core.echo", "tools/core.echo/versions/1.0.0"):
        found = await reply(stub.GetToolUsage(usage_pb.GetToolUsageRequest(name=name), **how))
        assert (found.usage.calls, found.distinct_callers) == (1, 1)
    top = usage_pb.ListTopUsageRequest(group=usage_pb.USAGE_GROUP_TOOL)
    assert [each.usage.calls for each in (await reply(stub.ListTopUsage(top, **how))).entries] == [1]
