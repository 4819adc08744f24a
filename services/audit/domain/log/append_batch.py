"""Appends a batch of which some records may be refused: all or none of it, or all but the refused records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.errors import MeshError
from services.audit.domain.errors import TakenIdsError
from services.audit.domain.log.append_records import AppendRecords
from services.audit.domain.model import Entry

Candidate = Entry | MeshError
"""A record of a batch: an entry, or why it is refused."""

NOTHING_STORED = -1
# A violation names the record by its position in the batch, which a refusal has as a field of its own.
_POSITION = re.compile(r"^(?:canonical_)?records\[\d+\]\.?")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused record: its position in the batch, its id, the field and the violated rule."""

    index: int
    record_id: str
    path: str
    rule: str


@dataclass(frozen=True, slots=True)
class AppendedBatch:
    """The sequence of the last stored record (-1 without any), and the refused records in order."""

    last_sequence: int
    refused: Sequence[Refusal] = ()


def all_or_none(candidates: Sequence[Candidate]) -> list[Entry]:
    """Return the entries; raise the first refusal if there is one."""
    entries = []
    for candidate in candidates:
        if isinstance(candidate, MeshError):
            raise candidate
        entries.append(candidate)
    return entries


async def append_all(appender: AppendRecords, candidates: Sequence[Candidate]) -> AppendedBatch:
    """Append the whole batch; raise AUDIT_RECORD_INVALID and store nothing if one record is refused."""
    return AppendedBatch(await appender.append(all_or_none(candidates)))


async def append_accepted(appender: AppendRecords, candidates: Sequence[Candidate]) -> AppendedBatch:
    """Append all records that are not refused, and return the others with the reason."""
    refused = {index: candidate for index, candidate in enumerate(candidates) if isinstance(candidate, MeshError)}
    while accepted := [
        (index, entry)
        for index, entry in enumerate(candidates)
        if index not in refused and not isinstance(entry, MeshError)
    ]:
        try:
            last = await appender.append([entry for _, entry in accepted])
        except TakenIdsError as error:
            refused |= {accepted[position][0]: error for position in error.positions}
        else:
            return AppendedBatch(last, _refusals(refused, candidates))
    return AppendedBatch(NOTHING_STORED, _refusals(refused, candidates))


def _refusals(refused: dict[int, MeshError], candidates: Sequence[Candidate]) -> list[Refusal]:
    return [_refusal(index, refused[index], candidates[index]) for index in sorted(refused)]


def _refusal(index: int, error: MeshError, candidate: Candidate) -> Refusal:
    record_id = candidate.record_id if isinstance(candidate, Entry) else error.metadata.get("record_id", "")
    violation = error.violations[0]
    return Refusal(index, record_id, _POSITION.sub("", violation.path), violation.rule)
