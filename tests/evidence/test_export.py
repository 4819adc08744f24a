"""Exports of a real log, verified offline and by a third-party implementation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import grpc
import metamorphic_log
import pytest
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import log_service_pb2
from toolmesh.audit.v1.audit_service_pb2_grpc import AuditServiceStub
from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub
from toolmesh_sdk.audit import Note, verify_export, verify_speed
from toolmesh_sdk.audit.export.exporter import Selection, export
from toolmesh_sdk.audit.export.parquet import read_rows
from toolmesh_sdk.audit.format.manifest import read_manifest

from tests.evidence.conftest import ERASED, LogCopy, OriginalLog
from tests.evidence.live_log import BEGIN, LiveLog, break_first_export, records

MakeCopy = Callable[[], LogCopy]


def test_the_whole_log_is_exported_and_verified_with_the_key_alone(
    honest: LiveLog, original: OriginalLog, tmp_path: Path
) -> None:
    done = export(honest.remote(), tmp_path / "out", Selection(), parquet=True, ocsf=True)
    assert (done.records, sorted(done.digests)) == (1041, ["shard-00000", "shard-00001", "shard-00002"])
    report = verify_export(tmp_path / "out", original.key)
    assert report.to_dict()["findings"] == report.problems == []
    assert [(s.number, s.records, s.erased) for s in report.shards] == [(0, 300, 1), (1, 641, 0), (2, 100, 0)]
    rows = list(read_rows(tmp_path / "out" / "shard-00001" / "records.parquet"))
    assert [row["sequence"] for row in rows] == list(range(300, 941))
    lines = (tmp_path / "out" / "shard-00000" / "records.ocsf.ndjson").read_bytes().splitlines()
    assert len(lines) == 299, "an erased record has nothing to tell a SIEM"


@pytest.mark.parametrize(
    ("selection", "first", "end"),
    [
        (Selection(shard=1), 300, 941),
        (Selection(first=310, end=700), 310, 700),
        (Selection(first=1000), 1000, 1041),
        (Selection(from_time=BEGIN + timedelta(seconds=320), to_time=BEGIN + timedelta(seconds=330)), 321, 331),
    ],
    ids=["shard", "range", "open end", "times"],
)
def test_a_part_is_exported_and_verified(
    honest: LiveLog, original: OriginalLog, tmp_path: Path, selection: Selection, first: int, end: int
) -> None:
    export(honest.remote(), tmp_path / "out", selection)
    [folder] = [path.parent for path in (tmp_path / "out").rglob("manifest.json")]
    manifest = read_manifest(folder)
    assert (manifest.first_sequence, manifest.end_sequence) == (first, end)
    report = verify_export(folder, original.key)
    assert report.exit_code == 0, report.to_dict()


def test_an_erasure_that_is_recorded_in_another_shard_is_explained(
    honest: LiveLog, original: OriginalLog, tmp_path: Path
) -> None:
    export(honest.remote(), tmp_path / "out", Selection(first=0, end=50))
    assert verify_export(tmp_path / "out", original.key).shards[0].erased == 1
    [said] = json.loads((tmp_path / "out" / "proofs.json").read_bytes())["erasures"]
    assert (said["sequence"], said["record"]["erasure"]["reason"]) == (ERASED, "asked for")


def test_an_export_proves_consistency_with_a_kept_checkpoint(
    honest: LiveLog, original: OriginalLog, tmp_path: Path
) -> None:
    kept = next(each for each in honest.remote().checkpoints(1) if each.tree_size == 161)
    export(honest.remote(), tmp_path / "out", Selection(first=700, end=800), known={1: 161})
    assert verify_export(tmp_path / "out", original.key, [Note.parse(kept.note)]).exit_code == 0


@pytest.mark.parametrize(("shard", "count"), [(0, 300), (1, 641)], ids=["with an erasure in the part before", "plain"])
def test_a_broken_export_goes_on_where_it_stopped(
    honest: LiveLog, original: OriginalLog, tmp_path: Path, shard: int, count: int
) -> None:
    remote = honest.remote()
    begun = break_first_export(remote, shard)
    done = export(remote, tmp_path / "out", Selection(shard=shard))
    assert (done.records, len(begun)) == (count, 2)
    report = verify_export(tmp_path / "out", original.key)
    assert report.exit_code == 0, report.to_dict()


@pytest.mark.parametrize("behind", ["header", "records"])
def test_an_export_that_breaks_while_the_log_grows_stays_the_same(copy: MakeCopy, tmp_path: Path, behind: str) -> None:
    made = copy()
    with made.serve() as log:
        remote = log.remote()
        begun = break_first_export(remote, 2, meanwhile=lambda: log.append(records(7, 5000)), behind=behind)
        done = export(remote, tmp_path / "out", Selection())
    assert (done.records, len(begun)) == (1041, 2)
    assert verify_export(tmp_path / "out", made.original.key).exit_code == 0


def test_an_export_of_a_log_that_grows_ends_with_its_checkpoint(copy: MakeCopy, tmp_path: Path) -> None:
    made = copy()
    with made.serve() as log:
        remote = log.remote()
        listed = remote.shards()
        remote.shards = lambda: listed  # type: ignore[method-assign]
        log.append(records(20, 5000))
        export(remote, tmp_path / "out", Selection())
    report = verify_export(tmp_path / "out", made.original.key, whole=True)
    assert (report.exit_code, report.remarks, report.records) == (0, [], 1061)


def test_missing_parts_cannot_be_exported(honest: LiveLog) -> None:
    stub = AuditServiceStub(honest.transport("operator").channel)
    for request in (
        pb.ExportRecordsRequest(shard=9),
        pb.ExportRecordsRequest(shard=2**40),
        pb.ExportRecordsRequest(range=pb.SequenceRange(first_sequence=5000)),
        pb.ExportRecordsRequest(range=pb.SequenceRange(first_sequence=10, end_sequence=10)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.ExportRecords(request, timeout=10))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND  # type: ignore[attr-defined]


def test_a_service_may_not_export(honest: LiveLog) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(AuditServiceStub(honest.transport("executor").channel).ExportRecords(pb.ExportRecordsRequest(shard=0)))
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED  # type: ignore[attr-defined]


def test_an_export_is_fixed_when_it_begins(copy: MakeCopy, tmp_path: Path) -> None:
    made = copy()
    with made.serve() as log:
        stub = AuditServiceStub(log.transport("operator").channel)
        parts = stub.ExportRecords(pb.ExportRecordsRequest(shard=2), timeout=20)
        header = next(parts).header
        log.append(records(20, 5000))
        sequences = [r.sequence for part in parts for r in part.records.records]
        assert (sequences[0], sequences[-1] + 1) == (header.first_sequence, header.end_sequence) == (941, 1041)
        export(log.remote(), tmp_path / "later", Selection(shard=2))
    assert verify_export(tmp_path / "later", made.original.key).records == 120


def test_a_tampered_log_is_exported_as_it_is_and_found(copy: MakeCopy, tmp_path: Path) -> None:
    made = copy()
    payload = made.sql("select canonical from records where sequence = 700")[0][0].replace(b"success", b"timeout")
    made.sql("update records set canonical = %(payload)s where sequence = 700", payload=payload)
    with made.serve() as log:
        export(log.remote(), tmp_path / "out", Selection(shard=1))
    first = verify_export(tmp_path / "out", made.original.key).first
    assert first is not None
    assert (first.kind.value, first.sequence) == ("edit", 700)


def test_a_log_with_a_gap_cannot_be_exported(copy: MakeCopy, tmp_path: Path) -> None:
    made = copy()
    made.sql("delete from records where sequence = 700")
    with made.serve() as log, pytest.raises(ValueError, match="700"):
        export(log.remote(), tmp_path / "out", Selection(shard=1))
    assert not (tmp_path / "out" / "manifest.json").exists()


# ---- another implementation of the same standards


def own_key(original: OriginalLog, shard: int) -> str:
    """The key under the name that it signs a shard's notes with."""
    from toolmesh_sdk.audit import VerifierKey

    return VerifierKey(f"{original.key.log}/{shard}", original.key.public_key).text


def test_another_implementation_accepts_our_notes_and_inclusion_proofs(honest: LiveLog, original: OriginalLog) -> None:
    stub = LogServiceStub(honest.transport("operator").channel)
    for shard in honest.remote().shards():
        for checkpoint in honest.remote().checkpoints(shard.number):
            if not checkpoint.tree_size:
                continue
            head = metamorphic_log.checkpoint_verify(checkpoint.note, [own_key(original, shard.number)])
            assert (head.size, head.root) == (checkpoint.tree_size, checkpoint.root_hash)
            for index in {0, 1, checkpoint.tree_size // 2, checkpoint.tree_size - 1} & set(range(checkpoint.tree_size)):
                request = log_service_pb2.GetInclusionProofRequest(
                    sequence=shard.first_sequence + index, tree_size=checkpoint.tree_size
                )
                proof = stub.GetInclusionProof(request, timeout=10)
                metamorphic_log.checkpoint_verify_inclusion(
                    checkpoint.note, [own_key(original, shard.number)], index, proof.leaf_hash, list(proof.hashes)
                )
                with pytest.raises(metamorphic_log.VerifyError):
                    metamorphic_log.verify_inclusion(
                        index, checkpoint.tree_size, bytes(32), list(proof.hashes), checkpoint.root_hash
                    )


def test_another_implementation_accepts_our_consistency_proofs(honest: LiveLog, original: OriginalLog) -> None:
    for shard in honest.remote().shards():
        notes = [each for each in honest.remote().checkpoints(shard.number) if each.tree_size]
        for older, newer in pairwise(notes):
            proof = honest.remote().consistency(shard.number, older.tree_size, newer.tree_size)
            metamorphic_log.checkpoint_verify_consistency(
                older.note, newer.note, [own_key(original, shard.number)], list(proof.hashes)
            )
            with pytest.raises(metamorphic_log.VerifyError):
                metamorphic_log.verify_consistency(
                    *(older.tree_size, newer.tree_size, list(proof.hashes), bytes(32), newer.root_hash)
                )
        for size in (1, 2, 255, 256, 257, 500):
            if size < shard.tree_size:
                proof = honest.remote().consistency(shard.number, size, shard.tree_size)
                metamorphic_log.verify_consistency(
                    *(size, shard.tree_size, list(proof.hashes), proof.first_root, shard.root_hash)
                )


def test_the_speed_of_verifying_is_known(honest: LiveLog, original: OriginalLog, tmp_path: Path) -> None:
    export(honest.remote(), tmp_path / "out", Selection(shard=1))
    assert verify_speed(tmp_path / "out", original.key) > 0
    shutil.rmtree(tmp_path / "out" / "..", ignore_errors=True)
