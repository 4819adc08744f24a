"""An export against its verifier: every kind of tampering is found, named and placed, also by a forger who is careful.

A careful forger brings everything in line that no key protects: attributes, leaf hashes in the lines, and the manifest.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk.audit.format.canonical import canonical
from toolmesh_sdk.audit.format.events import RecordLocation, attributes_of
from toolmesh_sdk.audit.format.manifest import read_manifest

from sdk.tests.audit_sample import (
    LOG,
    Key,
    Shard,
    a_form,
    a_log,
    change_lines,
    consistency_of,
    erasure_of,
    first_of,
    leaf_of,
    path_of,
    payload_of,
    remanifest,
    root_of,
    verdict,
    write,
    write_all,
)

Change = Callable[[list[bytes]], list[bytes]]


@pytest.fixture
def key() -> Key:
    return Key()


@pytest.fixture
def shard() -> Shard:
    return a_log(20)[0]


@pytest.fixture
def export(tmp_path: Path, key: Key, shard: Shard) -> Path:
    return write(tmp_path / "export", key, shard, per_file=8)


def forged(sequence: int, form: dict[str, Any], shard: int = 0) -> bytes:
    """Return a line that is right in itself."""
    payload = payload_of(form)
    head = attributes_of(RecordLocation(LOG, shard, sequence), leaf_of(payload), form)
    return json.dumps({**head, "data": form}, ensure_ascii=False).encode()


def renumbered(lines: list[bytes], first: int = 0) -> list[bytes]:
    """Give the lines the attributes of the places that they stand at now."""
    return [forged(first + place, json.loads(line)["data"]) for place, line in enumerate(lines)]


def all_lines(folder: Path, change: Change) -> None:
    """Change the lines of all files as if they were one, into the first; the others become empty."""
    names = read_manifest(folder).record_files
    lines = [line for name in names for line in (folder / name).read_bytes().splitlines()]
    for name in names:
        (folder / name).write_bytes(b"")
    (folder / names[0]).write_bytes(b"".join(line + b"\n" for line in change(lines)))


def swapped(lines: list[bytes], one: int, other: int) -> list[bytes]:
    lines[one], lines[other] = lines[other], lines[one]
    return lines


# ---- what is good


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


# ---- what was done to the records


def edit(lines: list[bytes]) -> list[bytes]:
    form = json.loads(lines[11])["data"]
    return [*lines[:11], forged(11, {**form, "status": "error"}), *lines[12:]]


TAMPERINGS: dict[str, tuple[Change, str, int]] = {
    "edit": (edit, "edit", 11),
    "edit of a digit past 2^53": (
        lambda ls: [line.replace(b"9007199254740999", b"9007199254740998") for line in ls],
        "edit",
        7,
    ),
    "edit of the last": (lambda ls: [*ls[:-1], ls[-1].replace(b"success", b"timeout")], "edit", 19),
    "a copy of a later record": (lambda ls: [*ls[:3], ls[9], *ls[4:]], "edit", 3),
    "deletion": (lambda ls: [*ls[:4], *ls[5:]], "deletion", 4),
    "deletion of the first": (lambda ls: ls[1:], "deletion", 0),
    "deletion of several": (lambda ls: [*ls[:4], *ls[9:]], "deletion", 4),
    "insertion": (lambda ls: [*ls[:6], forged(6, a_form(99)), *ls[6:]], "insertion", 6),
    "insertion of a copy": (lambda ls: [*ls[:6], ls[15], *ls[6:]], "insertion", 6),
    "insertion at the end": (lambda ls: [*ls, forged(20, a_form(99))], "insertion", 20),
    "reordering of neighbours": (lambda ls: swapped(ls, 8, 9), "reordering", 8),
    "reordering far apart": (lambda ls: swapped(ls, 2, 17), "reordering", 2),
    "truncation": (lambda ls: ls[:14], "truncation", 14),
    "nothing left": (lambda ls: [], "truncation", 0),
    "a line that is no JSON": (lambda ls: [*ls[:5], b"{", *ls[6:]], "edit", 5),
    "a key twice": (lambda ls: [*ls[:5], ls[5][:-1] + b',"data":{}}', *ls[6:]], "edit", 5),
}


@pytest.mark.parametrize("name", TAMPERINGS)
@pytest.mark.parametrize("careful", [False, True], ids=["as it is", "careful"])
def test_tampering_with_records_is_found_named_and_placed(export: Path, key: Key, name: str, careful: bool) -> None:
    change, kind, sequence = TAMPERINGS[name]
    readable = name not in ("a line that is no JSON", "a key twice")
    all_lines(export, lambda lines: renumbered(change(lines)) if careful and readable else change(lines))
    remanifest(export)
    assert first_of(verdict(export, key)) == (kind, sequence)


@pytest.mark.parametrize("name", ["edit", "deletion", "insertion", "reordering far apart"])
def test_a_change_is_found_in_a_part_of_a_shard_as_well(tmp_path: Path, key: Key, shard: Shard, name: str) -> None:
    folder = write(tmp_path / "part", key, shard, first=3, end=18)
    change, kind, sequence = TAMPERINGS[name]

    def within(lines: list[bytes]) -> list[bytes]:
        return change([b""] * 3 + lines + [lines[-1]] * 2)[3:-2]

    change_lines(folder, (lambda ls: renumbered(swapped(ls, 2, 9), 3)) if "far" in name else within)
    remanifest(folder)
    assert first_of(verdict(folder, key)) == (kind, 5 if "far" in name else sequence)


def test_without_the_list_of_leaves_the_lines_still_tell(export: Path, key: Key) -> None:
    all_lines(export, lambda lines: [*lines[:4], *lines[5:]])
    (export / "leaves.bin").write_bytes(b"")
    remanifest(export)
    assert first_of(verdict(export, key)) == ("deletion", 4)


@pytest.mark.parametrize(("pinned", "expected"), [((5, 10, 15), ("deletion", 10)), ((), ("truncation", 19))])
def test_a_careful_deletion_is_placed_between_the_checkpoints_that_pin_it(
    tmp_path: Path, key: Key, pinned: tuple[int, ...], expected: tuple[str, int]
) -> None:
    good, bad = a_log(20)[0], a_log(20)[0]
    del bad.payloads[12]
    notes = [key.note(0, size, root_of(good.leaves[:size])) for size in pinned]

    def earlier(evidence: Any) -> None:
        evidence.checkpoints = notes

    folder = write(tmp_path / "forged", key, good, evidence=earlier)
    all_lines(folder, lambda lines: renumbered([*lines[:12], *lines[13:]]))
    (folder / "leaves.bin").write_bytes(b"".join(bad.leaves))
    remanifest(folder)
    assert first_of(verdict(folder, key)) == expected


def test_a_forger_who_changes_everything_but_the_signature_is_found(tmp_path: Path, key: Key) -> None:
    good, bad = a_log(20)[0], a_log(20)[0]
    bad.payloads[12] = payload_of(a_form(12, status="error"))
    notes = [key.note(0, size, root_of(good.leaves[:size])) for size in (5, 10, 15)]

    def earlier(evidence: Any) -> None:
        evidence.checkpoints = notes

    folder = write(tmp_path / "forged", key, bad, evidence=earlier)
    remanifest(folder, checkpoint=key.note(0, 20, root_of(good.leaves)))
    report = verdict(folder, key)
    assert first_of(report) == ("rewritten", 10), "between the checkpoints of 10 and 15 records"


def test_a_line_that_lies_about_its_record_is_an_edit(export: Path, key: Key) -> None:
    for lie in ({"time": "2020-01-01T00:00:00Z"}, {"leafhash": "00" * 32}, {"extra": 1}, {"sequence": "1"}):
        shutil.copytree(export, copy := export.parent / f"copy-{next(iter(lie))}")
        all_lines(copy, lambda ls, lie=lie: [*ls[:3], json.dumps({**json.loads(ls[3]), **lie}).encode(), *ls[4:]])
        remanifest(copy)
        assert first_of(verdict(copy, key)) == ("edit", 3), lie


# ---- signatures, keys, manifests, files


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


# ---- known checkpoints


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


# ---- shards


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


# ---- erasures


def test_an_erased_payload_is_accepted_where_a_record_says_so(tmp_path: Path, key: Key, shard: Shard) -> None:
    shard.payloads[15] = payload_of(erasure_of(15, shard, 4))
    shard.erased = {4}
    report = verdict(write(tmp_path / "export", key, shard, parquet=True, ocsf=True), key)
    assert report.exit_code == 0, report.to_dict()
    assert report.shards[0].erased == 1


def test_an_erasure_that_is_recorded_elsewhere_comes_with_its_proof(tmp_path: Path, key: Key) -> None:
    shards = a_log(5, 4)
    form = erasure_of(7, shards[0], 2)
    shards[1].payloads[2] = payload_of(form)
    shards[0].erased = {2}
    leaves = shards[1].leaves
    evidence_of = {
        "sequence": 2,
        "leaf_index": 2,
        "record": form,
        "path": [node.hex() for node in path_of(2, leaves)],
        "checkpoint": key.note(1, 4, root_of(leaves)),
    }

    def explained(evidence: Any) -> None:
        evidence.erasures = [evidence_of]

    assert verdict(write(tmp_path / "good", key, shards[0], evidence=explained), key).exit_code == 0
    for name, lie in (("sequence", 3), ("leaf_index", 1), ("checkpoint", Key().note(1, 4, root_of(leaves)))):
        lying = {**evidence_of, name: lie}
        folder = write(tmp_path / name, key, shards[0], evidence=lambda e, lying=lying: setattr(e, "erasures", [lying]))
        assert first_of(verdict(folder, key)) == ("unexplained_erasure", 2), name


def test_a_payload_that_is_just_gone_is_found(export: Path, key: Key) -> None:
    def without(lines: list[bytes]) -> list[bytes]:
        event = json.loads(lines[9])
        head = attributes_of(RecordLocation(LOG, 0, 9), bytes.fromhex(event["leafhash"]), None)
        return [*lines[:9], json.dumps(head).encode(), *lines[10:]]

    all_lines(export, without)
    remanifest(export)
    assert first_of(verdict(export, key)) == ("unexplained_erasure", 9)
