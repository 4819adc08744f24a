"""Tampering in the database, verified over the network."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk.audit import Kind, Note, Report
from toolmesh_sdk.audit.verify.online.online_check import OnlineCheck
from toolmesh_sdk.audit.verify.online.pinned_state import PinnedState, load, save

from services.audit.domain.merkle.merkle import CompactRange
from tests.evidence.conftest import LogCopy, OriginalLog, key_file
from tests.evidence.live_log import LiveLog, break_first_export, records

MakeCopy = Callable[[], LogCopy]
# In the second shard, in its second block of 256.
VICTIM = 300 + 256 + 77


def verify_online(
    log: LiveLog, original: OriginalLog, kept: PinnedState | None = None, **options: Any
) -> tuple[Report, OnlineCheck]:
    check = OnlineCheck(log.remote(), kept or PinnedState(), original.key, **options)
    return check.run(), check


def first_finding(copy: LogCopy, kept: PinnedState | None = None) -> tuple[str, int | None, str]:
    """Run the service on a copy, verify it, and return the first finding."""
    with copy.serve() as log:
        report, _ = verify_online(log, copy.original, kept)
    assert report.exit_code == 1, report.to_dict()
    assert report.first is not None
    return report.first.kind.value, report.first.sequence, report.first.detail


def forge_record(copy: LogCopy, sequence: int) -> dict[str, Any]:
    """Return a sequence, and its record with another status and the matching leaf hash."""
    [(payload,)] = copy.sql("select canonical from records where sequence = %(place)s", place=sequence)
    other = bytes(payload).replace(b'"status":"success"', b'"status":"timeout"')
    assert other != bytes(payload)
    return {"place": sequence, "payload": other, "leaf": hashlib.sha256(bytes(1) + other).digest()}


EDIT = "update records set canonical = %(payload)s where sequence = %(place)s"
EDIT_WITH_HASH = "update records set canonical = %(payload)s, leaf_hash = %(leaf)s where sequence = %(place)s"


def shift_statements(shard: int, by: int) -> list[str]:
    """Return statements that move all records of a shard from a sequence on."""
    statements = (
        "alter table records_{0} drop constraint if exists records_{0}_begin",
        "alter table records_{0} drop constraint if exists records_{0}_end",
        "update records_{0} set sequence = -(sequence + {1}) where sequence >= %(place)s",
        "update records_{0} set sequence = -sequence where sequence < 0",
    )
    return [statement.format(shard, by) for statement in statements]


INSERT = """
    insert into records (sequence, shard, record_id, canonical, leaf_hash, event_time)
    values (%(at)s, %(shard)s, 'inserted', %(payload)s, %(leaf)s, now())
"""


# ---- what is good


def test_the_whole_log_is_verified_and_what_to_keep_is_known(honest: LiveLog, original: OriginalLog) -> None:
    report, check = verify_online(honest, original)
    assert report.to_dict()["findings"] == report.problems == []
    assert [(s.number, s.first_sequence, s.records, s.erased) for s in report.shards] == [
        (0, 0, 300, 1),
        (1, 300, 641, 0),
        (2, 941, 100, 0),
    ]
    assert set(check.newest) == {0, 1, 2}
    again, _ = verify_online(honest, original, PinnedState(original.key.text, check.newest))
    assert again.exit_code == 0


def test_a_sample_is_verified_by_proofs(honest: LiveLog, original: OriginalLog) -> None:
    _, check = verify_online(honest, original)
    report, _ = verify_online(honest, original, PinnedState(original.key.text, check.newest), sample=7)
    assert report.exit_code == 0, report.to_dict()
    assert all(shard.sampled and 7 <= shard.records <= 8 for shard in report.shards)


def test_an_unpinned_key_is_accepted_with_a_remark(honest: LiveLog, original: OriginalLog) -> None:
    check = OnlineCheck(honest.remote(), PinnedState())
    report = check.run()
    assert report.exit_code == 0
    assert report.remarks
    assert check.key is not None
    assert check.key.public_key == original.key.public_key


def test_an_empty_log_is_nothing_to_verify(original: OriginalLog, database: Callable[[str], str]) -> None:
    from tests.evidence.live_log import run_service

    name = database("audit").rpartition("/")[2]
    with run_service(original.environment_of(name), original.pki) as log:
        report = OnlineCheck(log.remote(), PinnedState()).run()
    assert (report.exit_code, report.records) == (0, 0)


def test_a_log_that_grows_while_it_is_verified_is_good(copy: MakeCopy) -> None:
    made, done = copy(), threading.Event()
    with made.serve(TOOLMESH_CHECKPOINT_RECORDS="5", TOOLMESH_CHECKPOINT_SECONDS="0.1") as log:

        def grow() -> None:
            while not done.is_set():
                log.append(records(7, 5000))

        writer = threading.Thread(target=grow)
        writer.start()
        try:
            first, check = verify_online(log, made.original)
            log.close_shard(2)
            again, _ = verify_online(log, made.original, PinnedState(made.original.key.text, check.newest))
        finally:
            done.set()
            writer.join()
    assert (first.to_dict()["findings"], again.to_dict()["findings"]) == ([], [])
    assert [shard.number for shard in again.shards] == [0, 1, 2, 3]
    assert again.records > first.records >= 1041


def test_a_stream_that_breaks_while_the_log_grows_is_good(copy: MakeCopy) -> None:
    made = copy()
    with made.serve() as log:
        remote = log.remote()
        begun = break_first_export(remote, 2, meanwhile=lambda: log.append(records(7, 5000)))
        report = OnlineCheck(remote, PinnedState(), made.original.key).run()
    assert (report.to_dict()["findings"], report.records, len(begun)) == ([], 1041, 2)


def test_a_stream_that_breaks_behind_an_erased_payload_is_good(copy: MakeCopy) -> None:
    made = copy()
    # The record that explains the erasure cannot be walked over, so only what comes with the export does.
    with made.serve() as log:
        remote = log.remote()
        begun = break_first_export(remote, 0)
        check = OnlineCheck(remote, PinnedState(), made.original.key)
        shards = remote.shards()[:1]
        remote.shards = lambda: shards  # type: ignore[method-assign]
        report = check.run()
    assert (report.to_dict()["findings"], report.shards[0].erased, len(begun)) == ([], 1, 2)


# ---- every kind of tampering, on a copy of the database


def test_an_edited_record(copy: MakeCopy) -> None:
    made = copy()
    made.sql(EDIT, **forge_record(made, VICTIM))
    assert first_finding(made)[:2] == ("edit", VICTIM)


def test_a_record_edited_together_with_its_hash(copy: MakeCopy) -> None:
    made = copy()
    made.sql(EDIT_WITH_HASH, **forge_record(made, VICTIM))
    kind, place, detail = first_finding(made)
    assert (kind, place) == ("edit", 300 + 256), "the block that holds it"
    assert str(300 + 511) in detail


def test_a_deleted_record(copy: MakeCopy) -> None:
    made = copy()
    made.sql("delete from records where sequence = %(place)s", place=VICTIM)
    assert first_finding(made)[:2] == ("deletion", VICTIM)


@pytest.mark.parametrize(("shard", "victim", "expected"), [(0, 150, 100), (1, VICTIM, 300 + 256)])
def test_a_deleted_record_whose_gap_was_closed(copy: MakeCopy, shard: int, victim: int, expected: int) -> None:
    made = copy()
    made.sql("delete from records where sequence = %(place)s", *shift_statements(shard, -1), place=victim)
    assert first_finding(made)[:2] == ("deletion", expected), (
        "behind the last checkpoint that still fits; in the changed block"
    )


def test_an_inserted_record(copy: MakeCopy) -> None:
    made = copy()
    strange = {**forge_record(made, 250), "at": 150, "shard": 0}
    made.sql(*shift_statements(0, 1), INSERT, **{**strange, "place": 150})
    assert first_finding(made)[:2] == ("insertion", 150)


def test_an_inserted_record_in_a_long_stretch_without_checkpoints(copy: MakeCopy) -> None:
    made = copy()
    strange = {**forge_record(made, 250), "at": VICTIM, "shard": 1}
    made.sql(*shift_statements(1, 1), INSERT, **{**strange, "place": VICTIM})
    _, place, _ = first_finding(made)
    assert place is not None
    assert 300 + 161 <= place <= VICTIM


def test_reordered_records(copy: MakeCopy) -> None:
    made = copy()
    made.sql(
        "alter table records_1 drop constraint records_1_begin",
        "update records_1 set sequence = -1 where sequence = %(one)s",
        "update records_1 set sequence = %(one)s where sequence = %(other)s",
        "update records_1 set sequence = %(other)s where sequence = -1",
        one=VICTIM,
        other=VICTIM + 30,
    )
    assert first_finding(made)[:2] == ("reordering", VICTIM)


def test_a_truncated_log(copy: MakeCopy) -> None:
    made = copy()
    made.sql("delete from records where sequence >= 1020")
    assert first_finding(made)[:2] == ("truncation", 1020)


def test_a_log_that_was_truncated_with_everything_that_tells(copy: MakeCopy) -> None:
    made, size = copy(), 62
    with made.serve() as log:
        _, check = verify_online(log, made.original)
    leaves = [bytes(row[0]) for row in made.sql("select leaf_hash from records_2 order by sequence")][:size]
    made.sql(
        "delete from records where sequence >= %(end)s",
        "delete from checkpoints where shard = 2 and size > %(size)s",
        "update tree_head set size = %(end)s, hashes = %(hashes)s",
        size=size,
        end=941 + size,
        hashes=list(CompactRange().extend(leaves).hashes),
    )
    with made.serve() as log:
        alone, _ = verify_online(log, made.original)
    assert alone.exit_code == 0, "by itself the shorter log is whole; only a kept checkpoint tells"
    kept = PinnedState(made.original.key.text, check.newest)
    assert first_finding(made, kept)[:2] == ("truncation", 941 + size)


@pytest.mark.parametrize("sample", [0, 5])
def test_an_open_shard_that_was_emptied(copy: MakeCopy, sample: int) -> None:
    made = copy()
    with made.serve() as log:
        log.close_shard(2)
        log.append(records(50, 5000))
        _, check = verify_online(log, made.original)
    made.sql("delete from records where shard = 3", "update tree_head set size = first_sequence, hashes = '{}'")

    def emptied(kept: PinnedState) -> tuple[Any, ...]:
        with made.serve() as log:
            report, _ = verify_online(log, made.original, kept, sample=sample)
        assert report.first is not None
        return report.first.kind, report.first.shard, report.first.sequence

    expected, kept = (Kind.TRUNCATION, 3, 1041), PinnedState(made.original.key.text, check.newest)
    assert emptied(PinnedState()) == emptied(kept) == expected, "its checkpoints still say what it held"
    made.sql("delete from checkpoints where shard = 3")
    assert emptied(kept) == expected, "what was kept says it, too"
    assert emptied(PinnedState()) == expected, "it does not even hold the record that opened it"


def test_a_log_that_was_emptied(copy: MakeCopy) -> None:
    made = copy()
    with made.serve() as log:
        _, check = verify_online(log, made.original)
    made.sql(
        "drop table records_1, records_2",
        "delete from records",
        "delete from checkpoints",
        "delete from shards where number > 0",
        "update shards set close_time = null, size = null, root_hash = null",
        "update tree_head set shard = 0, first_sequence = 0, size = 0, hashes = '{}'",
    )
    kept = PinnedState(made.original.key.text, check.newest)
    assert first_finding(made, kept)[:2] == ("truncation", 0)
    with made.serve() as log:
        notes = list(kept.checkpoints().values())
        unpinned = OnlineCheck(log.remote(), PinnedState(), known=notes).run()
    assert unpinned.exit_code == 2, "whose checkpoints these are cannot be told without a key"


@pytest.mark.parametrize(
    "change",
    [
        "record_id = 'another'",
        "event_time = '2001-01-01'",
        "event_time = 'infinity'",
        "subject = 'mallory'",
        "tool_version = null",
        "trace_id = 'another'",
        "invocation_id = 'another'",
        "authz_outcome = 'deny'",
        "status = 'failure'",
        "ticket = 'another'",
    ],
)
def test_a_changed_index_column_is_found_online(copy: MakeCopy, change: str) -> None:
    made = copy()
    made.sql(f"update records set {change} where sequence = %(place)s", place=VICTIM)  # noqa: S608
    assert first_finding(made)[:2] == ("index_changed", VICTIM)


def test_a_stored_hash_that_was_changed(copy: MakeCopy) -> None:
    made = copy()
    made.sql("update subtrees set hash = %(hash)s where shard = 1 and place = 1", hash=bytes(32))
    assert first_finding(made)[:2] == ("stored_hash_changed", 300 + 256)


SWAP = (
    "alter table records_2 drop constraint records_2_begin",
    "update records_2 set sequence = -1 where sequence = 960",
    "update records_2 set sequence = 960 where sequence = 970",
    "update records_2 set sequence = 970 where sequence = -1",
)
DELETE = ("delete from records where sequence = 960", *shift_statements(2, -1))


@pytest.mark.parametrize(
    ("forgery", "located"), [(SWAP, (960, "reordering at sequence 960")), (DELETE, (941, "941 and 1040"))]
)
def test_a_log_that_goes_on_signing_after_a_careful_change(copy: MakeCopy, forgery: Any, located: Any) -> None:
    """A forger brings the head in line and removes the checkpoints, so that the service signs what is left. A kept
    checkpoint tells that, and where."""
    made = copy()
    with made.serve() as log:
        _, check = verify_online(log, made.original)
    made.sql(*forgery, "delete from checkpoints where shard = 2", place=960)
    leaves = [bytes(row[0]) for row in made.sql("select leaf_hash from records_2 order by sequence")]
    made.sql(
        "update tree_head set size = %(end)s, hashes = %(hashes)s",
        end=941 + len(leaves),
        hashes=list(CompactRange().extend(leaves).hashes),
    )
    kept = PinnedState(made.original.key.text, check.newest)
    with made.serve() as log:
        log.append(records(10, 5000))
        report, _ = verify_online(log, made.original, kept)
    assert report.first is not None
    assert (report.first.kind, report.first.sequence) == (Kind.FORK, located[0])
    assert located[1] in report.first.detail


def test_two_histories_of_the_same_size(copy: MakeCopy) -> None:
    one, other = copy(), copy()
    with one.serve() as log:
        log.append(records(10, 5000))
        _, check = verify_online(log, one.original)
    kept = PinnedState(one.original.key.text, check.newest)
    with other.serve() as log:
        log.append(records(10, 6000))
        report, _ = verify_online(log, other.original, kept)
        assert [f.kind.value for f in report.findings] == ["forked_history"]
        log.append(records(10, 7000))
        longer, _ = verify_online(log, other.original, kept)
        assert [f.kind.value for f in longer.findings] == ["forked_history"], "the kept one is no longer a beginning"
        sampled, _ = verify_online(log, other.original, kept, sample=3)
        assert [f.kind.value for f in sampled.findings] == ["forked_history"]


def test_a_signature_that_the_key_did_not_make(copy: MakeCopy) -> None:
    made = copy()
    [(note,)] = made.sql("select note from checkpoints where shard = 0 and size = 200")
    head, _, line = note.rpartition(" ")
    spoiled = head + " " + line[:20] + ("A" if line[20] != "A" else "B") + line[21:]
    made.sql("update checkpoints set note = %(note)s where shard = 0 and size = 200", note=spoiled)
    assert first_finding(made)[0] == "wrong_signature"


def test_another_key(copy: MakeCopy, tmp_path: Path) -> None:
    made = copy()
    with made.serve(TOOLMESH_CHECKPOINT_KEY=str(key_file(tmp_path))) as log:
        log.append(records(1, 5000))
        report, _ = verify_online(log, made.original)
    assert report.first is not None
    assert report.first.kind.value == "wrong_key"


def test_a_missing_shard(copy: MakeCopy) -> None:
    made = copy()
    made.sql("drop table records_1", "delete from checkpoints where shard = 1", "delete from shards where number = 1")
    kind, place, _ = first_finding(made)
    assert (kind, place) == ("shard_missing", 300)


def test_a_swapped_shard(copy: MakeCopy) -> None:
    made = copy()
    made.sql(EDIT_WITH_HASH, **forge_record(made, 42))
    leaves = [bytes(row[0]) for row in made.sql("select leaf_hash from records_0 order by sequence")]
    tree, nodes = CompactRange().grow(leaves)
    [(node, value)] = nodes
    made.sql(
        "delete from checkpoints where shard = 0",
        "update shards set root_hash = %(root)s where number = 0",
        "update subtrees set hash = %(value)s where shard = 0 and level = %(level)s and place = %(offset)s",
        root=tree.root(),
        value=value,
        **node._asdict(),
    )
    assert first_finding(made)[:2] == ("shard_swapped", 0)


def test_a_payload_that_is_just_gone(copy: MakeCopy) -> None:
    made = copy()
    made.sql("update records set canonical = null where sequence = %(place)s", place=VICTIM)
    assert first_finding(made)[:2] == ("unexplained_erasure", VICTIM)


def test_a_sample_finds_what_it_looks_at(copy: MakeCopy) -> None:
    made = copy()
    made.sql(EDIT, **forge_record(made, 0))
    with made.serve() as log:
        report, _ = verify_online(log, made.original, sample=1)
    assert report.first is not None
    assert (report.first.kind, report.first.sequence) == (Kind.EDIT, 0), (
        "the first record of a shard is always looked at"
    )


# ---- what is kept


def test_pinned_state_is_read_back_as_written(honest: LiveLog, original: OriginalLog, tmp_path: Path) -> None:
    _, check = verify_online(honest, original)
    kept = PinnedState(original.key.text, check.newest)
    save(tmp_path / "deep" / "kept.json", kept)
    assert load(tmp_path / "deep" / "kept.json") == kept
    assert load(tmp_path / "nothing.json") == PinnedState()
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ValueError):
        load(tmp_path / "bad.json")
    assert Note.parse(kept.notes[0]).size == 300
