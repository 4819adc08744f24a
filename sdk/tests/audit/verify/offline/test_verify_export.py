"""An export against its verifier: a good one is verified; its signatures, keys, manifest and files are checked."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk.audit.format.canonical import canonical
from toolmesh_sdk.audit.format.manifest import read_manifest

from sdk.tests.audit.verify.offline.forgery import all_lines
from sdk.tests.audit_sample import (
    Key,
    Shard,
    a_form,
    a_log,
    first_of,
    path_of,
    payload_of,
    remanifest,
    root_of,
    verdict,
    write,
    write_all,
)


@pytest.mark.parametrize(
    ("first", "end", "size"), [(0, 20, 20), (0, 7, 20), (5, 20, 20), (5, 11, 13), (19, 20, 20), (0, 1, 1)]
)
def test_an_export_of_any_part_is_verified_with_the_key_alone(
    tmp_path: Path, key: Key, shard: Shard, first: int, end: int, size: int
) -> None:
    folder = write(tmp_path / "part", key, shard, first=first, end=end, size=size, per_file=4, parquet=True, ocsf=True)
    report = verdict(folder, key)
    assert report.to_dict()["findings"] == report.problems == []
    assert (report.exit_code, report.records) == (0, end - first)
    assert json.loads(json.dumps(report.to_dict()))["outcome"] == "ok"


def test_shards_are_verified_one_by_one_and_as_a_chain(tmp_path: Path, key: Key) -> None:
    shards = a_log(5, 4, 6)
    report = verdict(write_all(tmp_path / "log", key, shards), key)
    assert report.exit_code == 0, report.to_dict()
    assert [(s.number, s.first_sequence, s.records) for s in report.shards] == [(0, 0, 5), (1, 5, 4), (2, 9, 6)]
    part = write(tmp_path / "part", key, shards[2], first=12, ocsf=True)
    assert verdict(part, key).exit_code == 0


def test_lines_that_another_tool_wrote_again_are_still_the_same_records(export: Path, key: Key) -> None:
    all_lines(export, lambda lines: [json.dumps(json.loads(line), indent=None).encode() for line in lines])
    remanifest(export)
    assert verdict(export, key).exit_code == 0


def test_another_key_is_a_wrong_key(export: Path) -> None:
    assert first_of(verdict(export, Key())) == ("wrong_key", None)


def test_a_changed_checkpoint_is_a_wrong_signature(export: Path, key: Key, shard: Shard) -> None:
    checkpoint = read_manifest(export).checkpoint
    root = base64.b64encode(root_of(shard.leaves)).decode()
    other = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    remanifest(export, checkpoint=checkpoint.replace(root, other))
    assert first_of(verdict(export, key)) == ("wrong_signature", None)


def test_a_key_in_the_manifest_that_is_not_the_signers_is_tampering(export: Path, key: Key) -> None:
    remanifest(export, verifier_key=Key().text)
    assert first_of(verdict(export, key))[0] == "manifest_tampered"


@pytest.mark.parametrize(
    "changes",
    [
        {"shard": 1},
        {"log": "elsewhere/audit/1"},
        {"first_sequence": 2},
        {"end_sequence": 21},
        {"shard_first_sequence": 3},
        {"previous_shard": {"number": 7}},
        {"checkpoint": "nothing"},
        {"verifier_key": "nothing"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_manifest_that_says_something_else_is_found(export: Path, key: Key, changes: dict[str, Any]) -> None:
    remanifest(export, **changes)
    assert verdict(export, key).exit_code == 1


def shorten(export: Path) -> None:
    """Cut an export behind fifteen records, as far as its files and its manifest go."""
    all_lines(export, lambda lines: lines[:15])
    (export / "leaves.bin").write_bytes((export / "leaves.bin").read_bytes()[: 15 * 32])
    remanifest(export, end_sequence=15)


def test_an_export_that_was_shortened_with_its_manifest_is_truncated(export: Path, key: Key) -> None:
    shorten(export)
    assert first_of(verdict(export, key)) == ("truncation", 15)


def test_an_export_that_was_shortened_with_its_path_is_a_part_and_says_so(export: Path, key: Key, shard: Shard) -> None:
    assert verdict(export, key, whole=True).remarks == []
    shorten(export)
    proofs = json.loads((export / "proofs.json").read_bytes())
    proofs["last"] = {"sequence": 14, "path": [node.hex() for node in path_of(14, shard.leaves)]}
    (export / "proofs.json").write_bytes(canonical(proofs) + b"\n")
    remanifest(export)
    report = verdict(export, key)
    assert (report.exit_code, len(report.remarks)) == (0, 1), "it cannot be distinguished from an export of this part"
    assert "15" in report.remarks[0]
    assert first_of(verdict(export, key, whole=True)) == ("truncation", 15)


def test_a_part_that_begins_behind_the_shards_first_record_says_so(tmp_path: Path, key: Key, shard: Shard) -> None:
    folder = write(tmp_path / "part", key, shard, first=5)
    assert len(verdict(folder, key).remarks) == 1
    assert first_of(verdict(folder, key, whole=True)) == ("deletion", 0)


def test_a_manifest_that_is_not_written_as_exports_are_is_tampered(export: Path, key: Key) -> None:
    manifest = export / "manifest.json"
    written = manifest.read_bytes()
    for spoiled in (
        written[:-2],
        written.replace(b'"shard":0', b'"shard": 0'),
        written.replace(b'"shard":0', b'"shard":"0"'),
        b"[]",
    ):
        manifest.write_bytes(spoiled)
        assert first_of(verdict(export, key))[0] == "manifest_tampered"


@pytest.mark.parametrize("name", ["records-00001.ndjson", "leaves.bin", "proofs.json"])
def test_a_file_that_is_not_the_one_in_the_manifest_is_named(export: Path, key: Key, name: str) -> None:
    content = (export / name).read_bytes()
    (export / name).write_bytes(content.replace(content[10:11], b"\x00", 1))
    report = verdict(export, key)
    assert report.exit_code == 1
    assert name in {finding.file for finding in report.findings}


def test_missing_and_strange_files_are_named(export: Path, key: Key) -> None:
    (export / "records-00001.ndjson").unlink()
    (export / "strange.txt").write_text("here")
    report = verdict(export, key)
    assert {finding.file for finding in report.findings} >= {"records-00001.ndjson", "strange.txt"}
    assert first_of(report) == ("deletion", 8), "what the missing file held"


@pytest.mark.parametrize("name", ["records.ocsf.ndjson", "records.parquet"])
def test_a_copy_in_another_form_that_says_something_else_is_named(
    tmp_path: Path, key: Key, shard: Shard, name: str
) -> None:
    folder = write(tmp_path / "good", key, shard, parquet=True, ocsf=True)
    other = a_log(20)[0]
    other.payloads[6] = payload_of(a_form(6, status="error"))
    shutil.copy(write(tmp_path / "bad", key, other, parquet=True, ocsf=True) / name, folder / name)
    remanifest(folder)
    report = verdict(folder, key)
    assert first_of(report) == ("file_tampered", 6)
    assert report.first is not None
    assert report.first.file == name


def test_a_folder_without_an_export_cannot_be_verified(tmp_path: Path, key: Key, export: Path) -> None:
    assert verdict(tmp_path / "nowhere", key).exit_code == 2
    manifest = export / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"export/1", b"export/9"))
    report = verdict(export, key)
    assert (report.exit_code, report.findings) == (2, [])
