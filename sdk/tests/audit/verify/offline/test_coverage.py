"""What an export is compared with: checkpoints that are known from elsewhere, and the other shards."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sdk.tests.audit_sample import (
    LOG,
    Key,
    Shard,
    a_form,
    a_log,
    consistency_of,
    first_of,
    payload_of,
    root_of,
    verdict,
    write,
    write_all,
)


def test_two_checkpoints_of_one_size_and_different_roots_are_a_fork(export: Path, key: Key) -> None:
    assert first_of(verdict(export, key, key.note(0, 20, hashlib.sha256(b"other").digest())))[0] == "forked_history"


def test_an_older_checkpoint_that_is_no_beginning_is_a_fork(export: Path, key: Key, shard: Shard) -> None:
    assert verdict(export, key, key.note(0, 13, root_of(shard.leaves[:13]))).exit_code == 0
    assert first_of(verdict(export, key, key.note(0, 13, root_of(shard.leaves[1:14]))))[0] == "forked_history"


def test_a_part_of_a_shard_proves_that_it_continues_what_the_exporter_knew(
    tmp_path: Path, key: Key, shard: Shard
) -> None:
    def knowing(evidence: Any) -> None:
        evidence.known = {"size": 6, "path": [node.hex() for node in consistency_of(6, shard.leaves)]}

    folder = write(tmp_path / "part", key, shard, first=12, evidence=knowing)
    assert verdict(folder, key, key.note(0, 6, root_of(shard.leaves[:6]))).exit_code == 0
    assert first_of(verdict(folder, key, key.note(0, 6, root_of(shard.leaves[2:8]))))[0] == "forked_history"
    assert verdict(folder, key, key.note(0, 5, root_of(shard.leaves[:5]))).exit_code == 2, "nothing says how it goes on"


def test_a_known_checkpoint_beyond_the_export_means_that_it_was_truncated(
    tmp_path: Path, key: Key, shard: Shard
) -> None:
    folder = write(tmp_path / "short", key, shard, end=15, size=15)
    assert first_of(verdict(folder, key, key.note(0, 20, root_of(shard.leaves)))) == ("truncation", 15)


def test_a_known_checkpoint_of_another_key_is_a_problem(export: Path, key: Key, shard: Shard) -> None:
    assert verdict(export, key, Key().note(0, 20, root_of(shard.leaves))).exit_code == 2


def test_a_witness_must_have_signed_when_asked_for(export: Path, key: Key) -> None:
    report = verdict(export, key, witness=Key(name="witness.example/w").verifier)
    assert first_of(report)[0] == "wrong_signature"


def test_a_missing_shard_is_named(tmp_path: Path, key: Key) -> None:
    shards = a_log(5, 4, 6)
    folder = write_all(tmp_path / "gap", key, [shards[0], shards[2]])
    report = verdict(folder, key)
    assert first_of(report) == ("shard_missing", 5)
    removed = write_all(tmp_path / "removed", key, shards)
    shutil.rmtree(removed / "shard-00002")
    found = verdict(removed, key).first
    assert found is not None
    assert (found.kind.value, found.file) == ("shard_missing", "shard-00002")


def test_a_swapped_shard_is_named(tmp_path: Path, key: Key) -> None:
    shards, others = a_log(5, 4, 6), a_log(5, 4, 6)
    others[1].payloads[2] = payload_of(a_form(7, status="error"))
    report = verdict(write_all(tmp_path / "log", key, [shards[0], others[1], shards[2]]), key)
    assert first_of(report) == ("shard_swapped", 5)


def test_a_shard_that_names_no_other_before_it_is_swapped(tmp_path: Path, key: Key) -> None:
    shard = a_log(5, 4)[1]
    shard.payloads[0] = payload_of(a_form(5))
    assert first_of(verdict(write(tmp_path / "export", key, shard), key)) == ("shard_swapped", 5)


@pytest.mark.parametrize(
    "lie", [{"number": 3}, {"origin": "elsewhere/audit/1/0"}, {"first_sequence": 2}, {"tree_size": 6}], ids=str
)
def test_a_shard_that_names_another_before_it_is_swapped(tmp_path: Path, key: Key, lie: dict[str, Any]) -> None:
    shard = a_log(5, 4)[1]
    opening = json.loads(shard.payloads[0])
    shard.payloads[0] = payload_of({**opening, "previous_shard": {**opening["previous_shard"], **lie}})
    assert first_of(verdict(write(tmp_path / "export", key, shard), key)) == ("shard_swapped", 5)


def test_a_link_that_another_than_the_log_wrote_is_none(tmp_path: Path, key: Key) -> None:
    shard = a_log(5, 4)[1]
    shard.payloads[0] = payload_of({**json.loads(shard.payloads[0]), "writer": "executor"})
    assert first_of(verdict(write(tmp_path / "export", key, shard), key)) == ("shard_swapped", 5)


def test_a_shard_that_ends_before_the_next_one_says_is_truncated(tmp_path: Path, key: Key) -> None:
    shards = a_log(5, 4)
    write(tmp_path / "log" / "shard-00000", key, shards[0], end=3, size=3)
    write(tmp_path / "log" / "shard-00001", key, shards[1])
    from toolmesh_sdk.audit.format.manifest import write_index

    digests = {
        each.name: "sha256:" + hashlib.sha256((each / "manifest.json").read_bytes()).hexdigest()
        for each in (tmp_path / "log").iterdir()
    }
    write_index(tmp_path / "log", LOG, digests)
    assert first_of(verdict(tmp_path / "log", key)) == ("truncation", 3)


def test_one_whole_shard_is_whole_by_itself_and_others_are_so_from_the_first_on(tmp_path: Path, key: Key) -> None:
    shards = a_log(5, 4, 6)
    assert verdict(write(tmp_path / "one", key, shards[1]), key, whole=True).exit_code == 0
    folder = write_all(tmp_path / "all", key, shards)
    assert verdict(folder, key, whole=True).remarks == []
    later = write_all(tmp_path / "later", key, shards[1:])
    assert (verdict(later, key).exit_code, len(verdict(later, key).remarks)) == (0, 1)
    assert first_of(verdict(later, key, whole=True)) == ("shard_missing", 0)


def test_an_export_that_ends_before_a_shard_that_is_known_says_so(tmp_path: Path, key: Key) -> None:
    shards = a_log(5, 4, 6)
    folder, note = write_all(tmp_path / "cut", key, shards[:2]), key.note(2, 6, root_of(shards[2].leaves))
    assert verdict(folder, key, whole=True).exit_code == 0, "nothing tells that there is more"
    assert any("shard 2" in remark for remark in verdict(folder, key, note).remarks)
    assert first_of(verdict(folder, key, note, whole=True)) == ("shard_missing", 9)


def test_an_index_without_exports_is_nothing_that_was_verified(tmp_path: Path, key: Key) -> None:
    assert verdict(write_all(tmp_path, key, []), key).exit_code == 2


def test_an_export_that_is_not_the_recorded_archive_is_remarked(tmp_path: Path, key: Key) -> None:
    shards = a_log(5, 4)
    archive = write(tmp_path / "archive", key, shards[0])
    digest = "sha256:" + hashlib.sha256((archive / "manifest.json").read_bytes()).hexdigest()
    said = {"shard": 0, "manifest_digest": digest, "records_dropped": True}
    shards[1].payloads[2] = payload_of(a_form(7, event_class="shard_archived", writer="audit", archival=said))
    assert verdict(write_all(tmp_path / "same", key, shards), key).remarks == []
    shards[1].payloads[2] = payload_of(
        a_form(7, event_class="shard_archived", writer="audit", archival={**said, "manifest_digest": "sha256:00"})
    )
    other = verdict(write_all(tmp_path / "other", key, shards), key)
    assert (other.exit_code, len(other.remarks)) == (0, 1)
