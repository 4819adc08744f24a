"""Tampered records: every kind of tampering is found, named and placed, also by a forger who is careful.

A careful forger brings everything in line that no key protects: attributes, leaf hashes in the lines, and the manifest.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sdk.tests.audit.verify.offline.forgery import Change, all_lines, forged, renumbered, swapped
from sdk.tests.audit_sample import (
    Key,
    Shard,
    a_form,
    a_log,
    change_lines,
    first_of,
    payload_of,
    remanifest,
    root_of,
    verdict,
    write,
)


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
