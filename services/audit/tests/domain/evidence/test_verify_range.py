"""VerifyRange finds every kind of tampering and names the first defect."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from toolmesh.audit.v1 import audit_service_pb2 as audit_pb
from toolmesh.audit.v1 import log_service_pb2 as pb
from toolmesh.common.v1 import caller_pb2

from services.audit.tests.database import sql
from services.audit.tests.replicas import Replica, reply
from services.audit.tests.sample import a_record

Superuser = Callable[..., list[Any]]
RECORDS = "alter table records disable trigger all; alter table records_0 disable trigger all"


async def verify(audit: Replica, first: int = 0, end: int = 0) -> Any:
    return await reply(audit.log().VerifyRange(pb.VerifyRangeRequest(first_sequence=first, end_sequence=end)))


async def filled(audit: Replica) -> Replica:
    """Two shards: 700 records in the first with a checkpoint at 600, ten in the second."""
    await audit.append(*(a_record() for _ in range(600)))
    await reply(audit.stub("operator").GetCheckpoint(audit_pb.GetCheckpointRequest()))
    await audit.append(*(a_record() for _ in range(100)))
    await reply(audit.log().CloseShard(pb.CloseShardRequest(shard=0)))
    await audit.append(*(a_record() for _ in range(9)))
    return audit


async def first_defect(audit: Replica, first: int = 0, end: int = 0) -> tuple[str, int, int]:
    answer = await verify(audit, first, end)
    assert not answer.ok
    return pb.Defect.Name(answer.bad.defect).removeprefix("DEFECT_"), answer.bad.sequence, answer.bad.end_sequence


async def test_a_log_as_it_was_written_is_good_in_every_part(audit: Replica) -> None:
    await filled(audit)
    for first, end in ((0, 0), (0, 1), (300, 301), (255, 257), (690, 705), (700, 0), (709, 710), (0, 10**9)):
        answer = await verify(audit, first, end)
        assert (answer.ok, answer.end_sequence) == (True, min(end or 710, 710))
    assert (await verify(audit, 710)).ok
    assert (await verify(audit, 10**9)).ok


async def test_an_empty_log_is_good(audit: Replica) -> None:
    assert (await verify(audit)).ok


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("update records set canonical = canonical || ' ' where sequence = 300", ("PAYLOAD_CHANGED", 300, 301)),
        ("update records set canonical = null where sequence = 301", ("PAYLOAD_MISSING", 301, 302)),
        ("delete from records where sequence = 302", ("SEQUENCE_BROKEN", 302, 303)),
        ("update records_0 set sequence = -1 where sequence = 303", ("SEQUENCE_BROKEN", -1, 0)),
        (
            "insert into records (shard, sequence, record_id, canonical, leaf_hash, event_time)"
            " select 0, 5000, 'forged-record', canonical, leaf_hash, event_time from records where sequence = 9",
            ("SEQUENCE_BROKEN", 5000, 5001),
        ),
    ],
)
async def test_an_edit_of_one_record_is_found_where_it_is(
    audit: Replica, superuser: Superuser, statement: str, expected: tuple[str, int, int]
) -> None:
    await filled(audit)
    unsealed = "alter table records_0 drop constraint if exists records_0_end, drop constraint records_0_begin"
    superuser(audit.url, RECORDS, unsealed, statement)
    assert await first_defect(audit) == expected


async def test_two_records_that_changed_places_are_found(audit: Replica, superuser: Superuser) -> None:
    await filled(audit)
    swap = """
        update records as r set record_id = o.record_id || '-', canonical = o.canonical, leaf_hash = o.leaf_hash
        from records as o where r.sequence in (400, 401) and o.sequence = 801 - r.sequence
    """
    superuser(audit.url, RECORDS, swap)
    # Each record matches its own hash, so only their block reveals the swap.
    assert await first_defect(audit) == ("LEAVES_CHANGED", 256, 512)


async def forge(audit: Replica, superuser: Superuser, sequence: int) -> None:
    """Replace the bytes of a record and its leaf hash."""
    payload = b'{"forged":true}'
    leaf = hashlib.sha256(b"\x00" + payload).hexdigest()
    partition = "records_0" if sequence < 700 else "records_1"
    superuser(
        audit.url,
        f"alter table {partition} disable trigger all",
        f"update records set canonical = '\\x{payload.hex()}', leaf_hash = '\\x{leaf}'"  # noqa: S608
        f" where sequence = {sequence}",
    )


async def test_a_record_with_a_hash_to_match_is_found_by_its_block(audit: Replica, superuser: Superuser) -> None:
    await filled(audit)
    await forge(audit, superuser, 257)
    assert await first_defect(audit) == ("LEAVES_CHANGED", 256, 512)
    assert await first_defect(audit, 300, 302) == ("LEAVES_CHANGED", 256, 512)
    assert (await verify(audit, 0, 256)).ok


async def test_a_record_with_a_hash_to_match_is_found_by_a_checkpoint(audit: Replica, superuser: Superuser) -> None:
    await filled(audit)
    await forge(audit, superuser, 590)
    assert await first_defect(audit, 560) == ("CHECKPOINT_BROKEN", 0, 600)


async def test_a_record_behind_the_last_checkpoint_is_found_by_the_root(audit: Replica, superuser: Superuser) -> None:
    await filled(audit)
    superuser(audit.url, "alter table checkpoints disable trigger all", "delete from checkpoints")
    await forge(audit, superuser, 690)
    assert await first_defect(audit) == ("ROOT_BROKEN", 512, 700)


async def test_a_record_of_the_open_shard_is_found_by_the_head(audit: Replica, superuser: Superuser) -> None:
    await filled(audit)
    await forge(audit, superuser, 705)
    assert await first_defect(audit) == ("ROOT_BROKEN", 700, 710)


async def test_a_broken_link_between_shards_is_found(audit: Replica, superuser: Superuser) -> None:
    await filled(audit)
    superuser(audit.url, "update shards set first_sequence = 1, size = 699 where number = 0")
    defect, sequence, _ = await first_defect(audit, 700)
    assert (defect, sequence) == ("LINK_BROKEN", 700)


async def test_a_shard_that_does_not_begin_with_its_link_is_found(audit: Replica, superuser: Superuser) -> None:
    await filled(audit)
    await forge(audit, superuser, 700)
    assert await first_defect(audit) == ("LINK_BROKEN", 700, 701)


async def test_a_changed_root_of_a_closed_shard_is_found(audit: Replica, superuser: Superuser) -> None:
    await filled(audit)
    superuser(audit.url, "update shards set root_hash = leaf_hash from records where number = 0 and sequence = 3")
    assert await first_defect(audit) == ("ROOT_BROKEN", 512, 700)
    assert (await first_defect(audit, 0, 10))[0] == "ROOT_BROKEN"


@pytest.mark.parametrize(
    "statement",
    [
        "update checkpoints set note = translate(note, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'BCDEFGHIJKLMNOPQRSTUVWXYZA')"
        " where size = 600",
        "update checkpoints set root_hash = '\\x00' where size = 600",
    ],
)
async def test_a_changed_checkpoint_is_found(audit: Replica, superuser: Superuser, statement: str) -> None:
    await filled(audit)
    superuser(audit.url, "alter table checkpoints disable trigger all", statement)
    assert await first_defect(audit) == ("CHECKPOINT_BROKEN", 0, 600)


async def test_a_checkpoint_under_a_forged_signature_is_found(audit: Replica, superuser: Superuser) -> None:
    await filled(audit)
    forged = "update checkpoints set note = regexp_replace(note, '.....==?\\n$', E'AAAAA=\\n') where size = 600"
    superuser(audit.url, "alter table checkpoints disable trigger all", forged)
    assert (await first_defect(audit))[0] == "CHECKPOINT_BROKEN"


async def test_a_changed_subtree_is_found(audit: Replica, superuser: Superuser) -> None:
    await filled(audit)
    superuser(
        audit.url, "alter table subtrees disable trigger all", "update subtrees set hash = '\\x00' where place = 1"
    )
    assert await first_defect(audit) == ("LEAVES_CHANGED", 256, 512)
    # A range after it cannot tell where the root went wrong.
    assert (await first_defect(audit, 600, 610))[0] in {"ROOT_BROKEN", "CHECKPOINT_BROKEN"}


async def test_an_erased_payload_is_good_only_while_its_record_says_so(audit: Replica, superuser: Superuser) -> None:
    await filled(audit)
    request = pb.ErasePayloadRequest(sequence=300, reason="asked for by the person it was about")
    await reply(audit.log().ErasePayload(request))
    assert (await verify(audit)).ok
    superuser(audit.url, "alter table erasures disable trigger all", "update erasures set erased_by = 709")
    assert await first_defect(audit) == ("PAYLOAD_MISSING", 300, 301)
    assert sql(audit.url, "select erased_by from erasures") == [(709,)]


@pytest.mark.parametrize(
    "change",
    [
        "record_id = 'another'",
        "event_time = event_time + interval '1 microsecond'",
        "event_time = 'infinity'",
        "log_time = 'infinity', subject = 'mallory'",
        "tool_version = null",
        "trace_id = 'another'",
        "authz_outcome = 'deny'",
        "ticket = 'another'",
    ],
)
async def test_a_changed_index_column_is_found(audit: Replica, superuser: Superuser, change: str) -> None:
    await filled(audit)
    superuser(audit.url, RECORDS, f"update records set {change} where sequence = 300")  # noqa: S608
    assert await first_defect(audit) == ("INDEX_CHANGED", 300, 301)
    assert (await verify(audit, 512)).ok


@pytest.mark.parametrize("text", ["x" * 600, "a\0b", "\\u0000", "gr\u00fc\u00dfe \U0001f600"])
async def test_truncated_and_replaced_index_texts_are_valid(audit: Replica, text: str) -> None:
    caller = caller_pb2.Caller(subject=text)
    await audit.append(a_record(caller=caller, ticket=text[:128], trace_id=""))
    assert (await verify(audit)).ok


async def test_a_leftover_index_column_of_an_erased_record_is_found(audit: Replica, superuser: Superuser) -> None:
    await filled(audit)
    await reply(audit.log().ErasePayload(pb.ErasePayloadRequest(sequence=300, reason="asked for")))
    superuser(audit.url, RECORDS, "update records set trace_id = 'left behind' where sequence = 300")
    assert await first_defect(audit) == ("INDEX_CHANGED", 300, 301)
