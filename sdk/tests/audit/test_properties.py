"""Any tampering with any export is found; no honest export is suspected."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sdk.tests.audit.verify.offline.forgery import renumbered
from sdk.tests.audit_sample import Key, a_form, a_log, change_lines, payload_of, remanifest, verdict, write

KEY = Key()
quick = settings(max_examples=60, deadline=None)


@st.composite
def parts(draw: st.DrawFn) -> tuple[int, int, int]:
    """A part of a shard, and the size of the tree that it is proved against."""
    size = draw(st.integers(1, 40))
    first = draw(st.integers(0, size - 1))
    return first, draw(st.integers(first + 1, size)), size


def exported(folder: Path, part: tuple[int, int, int], **options: bool) -> Path:
    first, end, size = part
    return write(folder / "export", KEY, a_log(40)[0], first=first, end=end, size=size, **options)


@quick
@given(parts(), st.booleans())
def test_an_honest_export_always_passes(part: tuple[int, int, int], copies: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = verdict(exported(Path(folder), part, parquet=copies, ocsf=copies), KEY)
        assert report.exit_code == 0, report.to_dict()


@st.composite
def tamperings(draw: st.DrawFn, count: int) -> tuple[str, int, Callable[[list[bytes]], list[bytes]]]:
    """Something to do to so many lines: its kind, where it begins, and how it is done."""
    possible = ["edit", "insertion", "deletion" if count > 1 else "edit", "truncation" if count > 1 else "edit"]
    kind = draw(st.sampled_from([*possible, "reordering" if count > 1 else "insertion"]))
    if kind == "reordering":
        one, other = sorted(draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=2, unique=True)))

        def swap(lines: list[bytes]) -> list[bytes]:
            lines[one], lines[other] = lines[other], lines[one]
            return lines

        return kind, one, swap
    last = {"edit": count - 1, "insertion": count, "deletion": count - 2, "truncation": count - 1}[kind]
    place = draw(st.integers(0 if kind != "truncation" else 1, last))
    strange = b'{"data":' + payload_of(a_form(99, status=draw(st.sampled_from(["error", "timeout"])))) + b"}"
    changes: dict[str, Callable[[list[bytes]], list[bytes]]] = {
        "edit": lambda lines: [*lines[:place], strange, *lines[place + 1 :]],
        "insertion": lambda lines: [*lines[:place], strange, *lines[place:]],
        "deletion": lambda lines: [*lines[:place], *lines[place + 1 :]],
        "truncation": lambda lines: lines[:place],
    }
    return kind, place, changes[kind]


@quick
@given(parts(), st.data(), st.booleans())
def test_every_careful_change_of_records_is_named_and_placed(
    part: tuple[int, int, int], data: st.DataObject, listed: bool
) -> None:
    kind, place, change = data.draw(tamperings(part[1] - part[0]))
    with tempfile.TemporaryDirectory() as folder:
        export = exported(Path(folder), part)
        change_lines(export, lambda lines: renumbered(change(lines), part[0]))
        if not listed:
            (export / "leaves.bin").write_bytes(b"")
        remanifest(export)
        report = verdict(export, KEY)
        assert report.exit_code == 1, report.to_dict()
        if listed:
            assert report.first is not None
            assert (report.first.kind.value, report.first.sequence) == (kind, part[0] + place)


@quick
@given(parts(), st.data())
def test_a_changed_byte_anywhere_is_found(part: tuple[int, int, int], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        export = exported(Path(folder), part, ocsf=True)
        path = data.draw(st.sampled_from(sorted(export.iterdir())))
        content = bytearray(path.read_bytes())
        if not content:
            return
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        # A manifest of a format that this build does not know cannot be verified; everything else is known to be bad.
        report = verdict(export, KEY)
        assert report.exit_code == 1 or (path.name == "manifest.json" and report.exit_code == 2)


@quick
@given(parts(), st.data())
def test_a_changed_byte_of_a_record_is_found_behind_a_careful_manifest(
    part: tuple[int, int, int], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        export = exported(Path(folder), part)
        path = export / "records-00000.ndjson"
        before = [json.loads(line) for line in path.read_bytes().splitlines()]
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        remanifest(export)
        report = verdict(export, KEY)
        if report.exit_code == 0:
            # Nothing but white space or the way a character is written.
            assert [json.loads(line) for line in path.read_bytes().splitlines()] == before
