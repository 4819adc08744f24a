"""Redacts what a tool reports before it is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump, parse
from libs.common.redaction.scanner import Scanner
from services.executor.domain.jobs.event import InputAsked, LogEntry, PartialContent, ProgressMade, Report


def redact(reports: Sequence[Report], scanner: Scanner) -> tuple[Report, ...]:
    """Return redacted reports. Consecutive lines of a log are scanned together: a secret may span several."""
    redacted: list[Report] = []
    for kind, group in groupby(reports, key=type):
        same = list(group)
        if kind is LogEntry:
            redacted += _redact_lines([each for each in same if isinstance(each, LogEntry)], scanner)
        else:
            redacted += [_redact_one(report, scanner) for report in same]
    return tuple(redacted)


def _redact_lines(entries: Sequence[LogEntry], scanner: Scanner) -> Iterator[LogEntry]:
    lines = [entry.text.replace("\n", " ") for entry in entries]
    text = "\n".join(lines)
    if not scanner.suspects(text):
        yield from entries
        return
    shown = str(scanner.text(text).value).split("\n")
    if len(shown) == len(entries):
        for entry, line in zip(entries, shown, strict=True):
            yield LogEntry(entry.severity, line)
        return
    # The lines no longer correspond: something across several of them was removed. Their number stays.
    for index, entry in enumerate(entries):
        rest = "\n".join(shown[index:]) if index == len(entries) - 1 else "\n".join(shown[index : index + 1])
        yield LogEntry(entry.severity, rest)


def _redact_one(report: Report, scanner: Scanner) -> Report:
    if isinstance(report, ProgressMade):
        message = str(scanner.text(report.report.message).value)
        return replace(report, report=replace(report.report, message=message))
    if isinstance(report, PartialContent):
        return PartialContent(redact_json(report.content, scanner))
    if isinstance(report, InputAsked):
        message = str(scanner.text(report.message).value)
        schema = redact_json(report.schema, scanner) if report.schema else b""
        requests = tuple(replace(each, params=redact_json(each.params, scanner)) for each in report.requests)
        return InputAsked(report.input_id, message, schema, requests)
    return report


def redact_json(content: bytes, scanner: Scanner) -> bytes:
    """Return redacted JSON; the marker of a removed value for text that is no strict JSON."""
    try:
        return dump(scanner.value(parse(content)).value)
    except MeshError:
        return dump(scanner.text(content.decode(errors="replace")).value)
