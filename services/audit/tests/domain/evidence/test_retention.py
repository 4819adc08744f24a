"""Closing, archiving, holds and erasure through the service: effects, records and refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import orjson
import pytest
from toolmesh.audit.v1 import audit_service_pb2 as audit_pb
from toolmesh.audit.v1 import log_service_pb2 as pb
from toolmesh.audit.v1 import shard_pb2 as shard_pb

from libs.common import page_tokens
from libs.common.errors import MeshError, Reason
from libs.common.sql.engine import engine_for
from services.audit.adapters.evidence.shards import PostgresShardStore
from services.audit.adapters.log.reader import PostgresReader
from services.audit.domain.log.shared_head import SharedHead
from services.audit.domain.log.tail import Tail
from services.audit.domain.log.watch_records import WatchRecords
from services.audit.domain.model import RecordFilter
from services.audit.tests.database import check_shards, sql
from services.audit.tests.replicas import Replica, reason_of, reply, take
from services.audit.tests.sample import a_record
from tests.fixtures import owners_url

Superuser = Callable[..., list[Any]]
DIGEST = "sha256:" + "ab" * 32
WHY = "the matter of Toolmesh and others"


def close(audit: Replica, shard: int = 0) -> Awaitable[Any]:
    return reply(audit.log().CloseShard(pb.CloseShardRequest(shard=shard)))


def archive(audit: Replica, shard: int = 0, digest: str = DIGEST, *, drop: bool = False) -> Awaitable[Any]:
    request = pb.ArchiveShardRequest(shard=shard, manifest_digest=digest, drop_records=drop)
    return reply(audit.log().ArchiveShard(request))


def hold(audit: Replica, first: int = 0, end: int = 0, hold_id: str = "matter-1") -> Awaitable[Any]:
    request = pb.PlaceLegalHoldRequest(hold_id=hold_id, first_sequence=first, end_sequence=end, reason=WHY)
    return reply(audit.log().PlaceLegalHold(request))


def release(audit: Replica, hold_id: str = "matter-1") -> Awaitable[Any]:
    return reply(audit.log().ReleaseLegalHold(pb.ReleaseLegalHoldRequest(hold_id=hold_id, reason="settled")))


def erase(audit: Replica, sequence: int) -> Awaitable[Any]:
    return reply(audit.log().ErasePayload(pb.ErasePayloadRequest(sequence=sequence, reason=WHY)))


async def condition_of(call: Awaitable[Any]) -> str:
    """Return the condition that refuses a call."""
    with pytest.raises(MeshError) as caught:
        await call
    assert caught.value.reason is Reason.FAILED_PRECONDITION
    return caught.value.metadata["condition"]


def forms(audit: Replica) -> list[dict[str, Any]]:
    return [orjson.loads(row[2]) if row[2] else {} for row in audit.stored()]


async def closed(audit: Replica) -> None:
    await audit.append(*(a_record() for _ in range(3)))
    await close(audit)


# ---- closing


async def test_closing_answers_the_closed_shard_and_may_be_repeated(audit: Replica) -> None:
    await closed(audit)
    first, again = (await close(audit)).shard, (await close(audit)).shard
    assert first == again
    assert (first.number, first.first_sequence, first.tree_size) == (0, 0, 3)
    assert first.state == shard_pb.SHARD_STATE_CLOSED
    listed = (await reply(audit.log().ListShards(pb.ListShardsRequest()))).shards
    assert [(s.number, s.first_sequence, s.tree_size, s.state) for s in listed] == [
        (0, 0, 3, shard_pb.SHARD_STATE_CLOSED),
        (1, 3, 1, shard_pb.SHARD_STATE_OPEN),
    ]
    assert listed[0].origin == f"toolmesh.local/audit/{first.name.split('/')[1]}/0"
    assert check_shards(audit.url) == [range(3), range(3, 4)]


async def test_a_closed_shard_has_a_checkpoint_of_all_of_it(audit: Replica) -> None:
    await closed(audit)
    listed = await reply(audit.log().ListCheckpoints(pb.ListCheckpointsRequest(shard=0)))
    shard = (await close(audit)).shard
    assert (listed.checkpoints[0].tree_size, listed.checkpoints[0].root_hash) == (3, shard.root_hash)


async def test_only_a_shard_with_records_can_be_closed(audit: Replica) -> None:
    assert await condition_of(close(audit)) == "shard_empty"
    assert await reason_of(close(audit, 1)) is Reason.NOT_FOUND


# ---- archiving


async def test_an_archive_is_noted_once_and_recorded(audit: Replica) -> None:
    await closed(audit)
    shard = (await archive(audit)).shard
    assert (shard.state, shard.manifest_digest) == (shard_pb.SHARD_STATE_ARCHIVED, DIGEST)
    assert (await archive(audit)).shard == shard
    written = [form for form in forms(audit) if form["event_class"] == "shard_archived"]
    assert [form["archival"] for form in written] == [{"shard": 0, "manifest_digest": DIGEST, "records_dropped": False}]
    assert written[0]["caller"] == {"peer": "operator"}
    assert await condition_of(archive(audit, digest="sha256:" + "cd" * 32)) == "archive_differs"


async def test_an_open_shard_is_neither_archived_nor_dropped(audit: Replica) -> None:
    await closed(audit)
    assert await condition_of(archive(audit, 1)) == "shard_open"
    assert await condition_of(archive(audit, 1, drop=True)) == "shard_open"
    assert await reason_of(archive(audit, 2)) is Reason.NOT_FOUND


async def test_nothing_is_dropped_before_its_time_and_nothing_is_noted_then(
    audit: Replica, superuser: Superuser
) -> None:
    await closed(audit)
    assert await condition_of(archive(audit, drop=True)) == "retention"
    superuser(
        audit.url, "update shards set close_time = now() - interval '7 years' + interval '1 minute' where number = 0"
    )
    assert await condition_of(archive(audit, drop=True)) == "retention"
    assert sql(audit.url, "select archive_time, drop_time from shards where number = 0") == [(None, None)]
    assert [form["event_class"] for form in forms(audit)].count("shard_archived") == 0


async def test_an_archived_shard_is_dropped_after_its_time(audit: Replica, superuser: Superuser) -> None:
    await closed(audit)
    await archive(audit)
    superuser(audit.url, "update shards set close_time = now() - interval '7 years 1 minute' where number = 0")
    shard = (await archive(audit, drop=True)).shard
    assert shard.state == shard_pb.SHARD_STATE_DROPPED
    assert (await archive(audit, drop=True)).shard == shard
    assert sql(audit.url, "select to_regclass('records_0')") == [(None,)]
    said = [form["archival"]["records_dropped"] for form in forms(audit) if form["event_class"] == "shard_archived"]
    assert said == [False, True]
    # The remaining log still supports reading, appending, proofs and verification.
    assert await audit.append(a_record()) == 6
    page = await reply(audit.stub("operator").QueryRecords(audit_pb.QueryRecordsRequest(ascending=True)))
    assert [record.sequence for record in page.records] == [3, 4, 5, 6]
    assert (await reply(audit.log().VerifyRange(pb.VerifyRangeRequest()))).ok
    assert (
        await condition_of(reply(audit.log().GetInclusionProof(pb.GetInclusionProofRequest(sequence=1)))) == "dropped"
    )
    assert (
        await condition_of(reply(audit.log().GetConsistencyProof(pb.GetConsistencyProofRequest(first_size=1))))
        == "dropped"
    )


@pytest.mark.parametrize("years", [0, 8, -1])
async def test_the_database_knows_the_least_and_the_longest_retention(
    audit: Replica, superuser: Superuser, years: int
) -> None:
    await closed(audit)
    await archive(audit)
    superuser(audit.url, "update shards set close_time = '2000-01-01' where number = 0")
    evidence = (
        "update records_1 set canonical = convert_to("
        "replace(convert_from(canonical, 'UTF8'), 'dropped\":false', 'dropped\":true'), 'UTF8')"
    )
    hashed = "update records_1 set leaf_hash = sha256('\\x00'::bytea || canonical)"
    superuser(audit.url, "alter table records_1 disable trigger all", evidence, hashed)
    [(place,)] = sql(audit.url, "select max(sequence) from records")
    with pytest.raises(Exception) as caught:
        sql(audit.url, f"select drop_shard({place}, {years})")
    assert caught.value.diag.message_detail == "retention_out_of_range"  # type: ignore[attr-defined]


async def dropped(audit: Replica, superuser: Superuser) -> None:
    """Drop the first shard of three records."""
    await closed(audit)
    await archive(audit)
    superuser(audit.url, "update shards set close_time = now() - interval '7 years 1 minute' where number = 0")
    await archive(audit, drop=True)


async def test_a_watch_does_not_skip_dropped_records(audit: Replica, superuser: Superuser) -> None:
    await dropped(audit, superuser)
    for place in (0, 2):
        with pytest.raises(MeshError) as caught:
            await take(audit.stub("operator").WatchRecords(audit_pb.WatchRecordsRequest(from_sequence=place)), 1)
        assert caught.value.reason is Reason.FAILED_PRECONDITION
        assert caught.value.metadata["next_sequence"] == "3"
    watch = audit.stub("operator").WatchRecords(audit_pb.WatchRecordsRequest(from_sequence=3))
    assert [logged.sequence for logged in await take(watch, 3)] == [3, 4, 5]
    watch.cancel()


async def test_a_watch_ends_when_unseen_records_are_dropped(audit: Replica, superuser: Superuser) -> None:
    await dropped(audit, superuser)
    engine = engine_for(audit.url, schema="audit")
    reader = PostgresReader(engine)
    watch = WatchRecords(reader, PostgresShardStore(engine), Tail(), SharedHead(reader))
    # The watch began before the drop and has reached this position.
    with pytest.raises(MeshError) as caught:
        await anext(watch.follow(1, RecordFilter()))
    assert caught.value.metadata["condition"] == "dropped"
    assert (await anext(watch.follow(3, RecordFilter()))).sequence == 3
    await engine.dispose()


@pytest.mark.parametrize(("first", "end"), [(0, 0), (2, 3), (0, 1), (1, 0)])
async def test_a_hold_keeps_a_shard_from_being_dropped(
    audit: Replica, superuser: Superuser, first: int, end: int
) -> None:
    await closed(audit)
    superuser(audit.url, "update shards set close_time = '2000-01-01' where number = 0")
    await hold(audit, first, end)
    assert await condition_of(archive(audit, drop=True)) == "legal_hold"
    await release(audit)
    assert (await archive(audit, drop=True)).shard.state == shard_pb.SHARD_STATE_DROPPED


async def test_a_hold_on_other_records_keeps_nothing(audit: Replica, superuser: Superuser) -> None:
    await closed(audit)
    superuser(audit.url, "update shards set close_time = '2000-01-01' where number = 0")
    await hold(audit, 3, 0)
    assert (await archive(audit, drop=True)).shard.state == shard_pb.SHARD_STATE_DROPPED


# ---- holding


async def test_a_hold_is_placed_once_recorded_and_listed(audit: Replica) -> None:
    await audit.append(a_record())
    placed = (await hold(audit, 0, 5)).hold
    assert (await hold(audit, 0, 5)).hold == placed
    assert (placed.first_sequence, placed.end_sequence, placed.reason, placed.placed_by) == (0, 5, WHY, "operator")
    assert await reason_of(hold(audit, 0, 6)) is Reason.ALREADY_EXISTS
    assert await reason_of(hold(audit, 4, 4, "empty")) is Reason.INVALID_REQUEST
    released = (await release(audit)).hold
    assert released.HasField("release_time")
    assert (await release(audit)).hold == released
    assert await reason_of(release(audit, "nobody-s")) is Reason.NOT_FOUND
    written = [(form["event_class"], form["hold"]) for form in forms(audit)[1:]]
    assert written == [
        ("hold_placed", {"hold_id": "matter-1", "first_sequence": 0, "end_sequence": 5, "reason": WHY}),
        ("hold_released", {"hold_id": "matter-1", "first_sequence": 0, "end_sequence": 5, "reason": "settled"}),
    ]


async def test_a_released_hold_cannot_be_placed_again(audit: Replica) -> None:
    """Placing a released hold again must not report success."""
    await audit.append(a_record())
    await hold(audit, 0, 5)
    await release(audit)
    assert await reason_of(hold(audit, 0, 5)) is Reason.ALREADY_EXISTS
    await hold(audit, 0, 5, "matter-1-again")
    assert await condition_of(erase(audit, 0)) == "legal_hold"


async def test_holds_are_listed_in_pages(audit: Replica) -> None:
    for name in ("c", "a", "b"):
        await hold(audit, hold_id=name)
    seen, token = [], ""
    while True:
        page = await reply(audit.log().ListLegalHolds(pb.ListLegalHoldsRequest(page_size=2, page_token=token)))
        seen += [each.hold_id for each in page.holds]
        token = page.next_page_token
        if not token:
            break
    assert seen == ["a", "b", "c"]
    other = pb.ListShardsRequest(
        page_token=(await reply(audit.log().ListLegalHolds(pb.ListLegalHoldsRequest(page_size=1)))).next_page_token
    )
    assert await reason_of(reply(audit.log().ListShards(other))) is Reason.PAGE_TOKEN_INVALID
    made_up = pb.ListLegalHoldsRequest(page_token=page_tokens.encode({"list": "holds"}, ["\0"]))
    assert await reason_of(reply(audit.log().ListLegalHolds(made_up))) is Reason.PAGE_TOKEN_INVALID


# ---- erasing


async def test_an_erased_record_keeps_its_place_and_every_proof(audit: Replica) -> None:
    await audit.append(*(a_record() for _ in range(3)))
    before = await reply(audit.log().GetInclusionProof(pb.GetInclusionProofRequest(sequence=1, tree_size=3)))
    erased_by = (await erase(audit, 1)).erased_by
    assert erased_by == 3
    assert (await erase(audit, 1)).erased_by == 3
    after = await reply(audit.log().GetInclusionProof(pb.GetInclusionProofRequest(sequence=1, tree_size=3)))
    assert after == before
    [row] = sql(
        audit.url,
        "select canonical, subject, tool_version, trace_id, invocation_id, authz_outcome, status, ticket"
        " from records where sequence = 1",
    )
    assert set(row) == {None}
    form = forms(audit)[3]
    assert (form["event_class"], form["writer"]) == ("payload_erased", "audit")
    assert form["erasure"] == {"sequence": 1, "leaf_hash": before.leaf_hash.hex(), "reason": WHY}


async def test_an_erased_record_is_read_without_its_payload(audit: Replica) -> None:
    record = a_record()
    await audit.append(a_record(), record)
    await erase(audit, 1)
    request = audit_pb.GetRecordRequest(name=f"records/{record.record_id}")
    found = (await reply(audit.stub("operator").GetRecord(request))).record
    assert (found.sequence, found.erased_by, found.canonical_json, found.HasField("record")) == (1, 2, b"", False)
    assert found.leaf_hash
    page = await reply(audit.stub("operator").QueryRecords(audit_pb.QueryRecordsRequest(ascending=True)))
    assert [(each.sequence, each.erased_by) for each in page.records] == [(0, 0), (1, 2), (2, 0)]


async def test_an_erased_record_still_keeps_its_id_from_others(audit: Replica) -> None:
    record = a_record()
    await audit.append(a_record(), record)
    await erase(audit, 1)
    assert await audit.append(record) == 1
    assert await reason_of(audit.append(a_record(record_id=record.record_id))) is Reason.AUDIT_RECORD_INVALID
    assert len(audit.stored()) == 3


async def test_a_payload_in_a_sealed_shard_can_be_erased(audit: Replica) -> None:
    await closed(audit)
    sql(audit.url, "select seal_shard(0)")
    await erase(audit, 2)
    assert (await reply(audit.log().VerifyRange(pb.VerifyRangeRequest()))).ok


async def test_a_record_that_postgres_cannot_read_as_json_can_be_erased(audit: Replica) -> None:
    await audit.append(a_record(result_summary=b'{"zero":"\\u0000"}'))
    assert (await erase(audit, 0)).erased_by == 1


async def test_a_hold_keeps_a_payload(audit: Replica) -> None:
    await audit.append(*(a_record() for _ in range(3)))
    await hold(audit, 1, 2)
    assert await condition_of(erase(audit, 1)) == "legal_hold"
    await erase(audit, 0)
    await erase(audit, 2)
    await release(audit)
    await erase(audit, 1)


async def test_the_logs_own_records_cannot_be_erased(audit: Replica) -> None:
    await closed(audit)
    await archive(audit)
    await hold(audit, 10**6, 0)
    await release(audit)
    await erase(audit, 0)
    own = [sequence for sequence, form in enumerate(forms(audit)) if form.get("writer") == "audit"]
    assert len(own) == 5
    for sequence in own:
        assert await condition_of(erase(audit, sequence)) == "own_record"
    assert await reason_of(erase(audit, 10**6)) is Reason.NOT_FOUND


async def test_a_refusal_leaves_no_trace_and_the_log_goes_on(audit: Replica) -> None:
    await audit.append(a_record())
    await hold(audit)
    size = len(audit.stored())
    await condition_of(erase(audit, 0))
    assert len(audit.stored()) == size
    assert await audit.append(a_record()) == size


# ---- who may


async def test_a_caller_needs_the_scope_of_administration(audit: Replica, signer: Any) -> None:
    await audit.append(a_record())

    def calls(scope: str) -> Iterator[Awaitable[Any]]:
        # Lazily, one after the other: concurrent calls could overtake each other.
        metadata = (("authorization", f"Bearer {signer.mint(scope=scope)}"),)
        stub = audit.log("edge")
        yield reply(stub.CloseShard(pb.CloseShardRequest(shard=0), metadata=metadata))
        yield reply(stub.ErasePayload(pb.ErasePayloadRequest(sequence=0, reason=WHY), metadata=metadata))

    assert {await reason_of(call) for call in calls("audit:read")} == {Reason.SCOPE_MISSING}
    for call in calls("audit:admin"):
        await call
    form = forms(audit)[2]
    assert form["caller"]["subject"] == signer_subject()
    assert form["caller"]["peer"] == "edge"


def signer_subject() -> str:
    return "did:web:toolmesh.local:users:alice"


async def test_services_do_not_keep_the_log(audit: Replica) -> None:
    call = reply(audit.log("executor").CloseShard(pb.CloseShardRequest(shard=0)))
    assert await reason_of(call) is Reason.PEER_NOT_ALLOWED


async def test_a_migrated_log_belongs_to_its_owner(audit: Replica) -> None:
    assert sql(owners_url(audit.url), "select current_user") == [("audit_owner",)]
