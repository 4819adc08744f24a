"""Verifies the OCSF and Parquet files of an export: recomputes them from the records and compares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any

from toolmesh_sdk.audit.export.ocsf import ocsf_line
from toolmesh_sdk.audit.export.parquet import read_rows, to_row
from toolmesh_sdk.audit.format.canonical import canonical
from toolmesh_sdk.audit.format.events import Line, RecordLocation
from toolmesh_sdk.audit.format.manifest import OCSF, PARQUET
from toolmesh_sdk.audit.verify.offline.export_folder import ExportFolder
from toolmesh_sdk.audit.verify.report import Finding, Kind

_Expected = Iterator[tuple[int, Any]]


def derived_file_findings(folder: ExportFolder) -> tuple[list[Finding], list[str]]:
    """Compare each derived file with the records; return findings, and problems that prevent a comparison."""
    findings: list[Finding] = []
    problems: list[str] = []
    if OCSF in folder.manifest.files:
        findings += _compare(folder, OCSF, _ocsf_lines(folder), lambda: folder.raw_lines([OCSF]))
    if PARQUET in folder.manifest.files:
        try:
            import pyarrow  # type: ignore[import-untyped]  # noqa: F401
        except ImportError:
            return findings, [f"{PARQUET} cannot be compared without pyarrow"]
        findings += _compare(folder, PARQUET, _rows(folder), lambda: read_rows(folder.path / PARQUET))
    return findings, problems


def _compare(
    folder: ExportFolder, name: str, expected: _Expected, actual: Callable[[], Iterable[Any]]
) -> list[Finding]:
    missing = object()
    shard, sequence = folder.manifest.shard, folder.manifest.first_sequence
    try:
        for wanted, actual_item in zip_longest(expected, actual(), fillvalue=missing):
            if not isinstance(wanted, tuple):
                return [Finding(Kind.FILE, "it has more entries than the records", shard=shard, file=name)]
            sequence = wanted[0]
            if actual_item is missing or actual_item != wanted[1]:
                detail = "it differs from the record"
                return [Finding(Kind.FILE, detail, shard=shard, sequence=sequence, file=name)]
    except ValueError as error:
        return [Finding(Kind.FILE, str(error), shard=shard, sequence=sequence, file=name)]
    return []


def _located_lines(folder: ExportFolder) -> Iterator[tuple[RecordLocation, Line]]:
    m = folder.manifest
    for sequence, line in enumerate(folder.lines(), start=m.first_sequence):
        if line is not None:
            yield RecordLocation(m.log, m.shard, sequence), line


def _ocsf_lines(folder: ExportFolder) -> _Expected:
    for location, line in _located_lines(folder):
        if line.form is not None:
            yield location.sequence, ocsf_line(location, line.leaf, line.form)


def _rows(folder: ExportFolder) -> _Expected:
    for location, line in _located_lines(folder):
        payload = b"" if line.form is None else canonical(line.form)
        yield location.sequence, to_row(location, line.leaf, payload, line.form)
