"""Metrics of commits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from prometheus_client import REGISTRY

from libs.common.errors import MeshError
from services.audit.adapters.log.metered_writer import MeteredWriter
from services.audit.domain.errors import RecordIdTakenError, log_unavailable
from services.audit.domain.model import AppendResult, Entry
from services.audit.tests.sample import an_entry

NAMES = (
    "toolmesh_audit_records_appended_total",
    "toolmesh_audit_records_repeated_total",
    "toolmesh_audit_commits_failed_total",
    "toolmesh_audit_commit_records_sum",
    "toolmesh_audit_commit_seconds_count",
)


class OneKnownWriter:
    """A log that already has the first entry of every batch."""

    async def append(self, entries: Sequence[Entry]) -> AppendResult:
        return AppendResult([0] * len(entries), len(entries) - 1, 10)

    def prepare_next(self, entries: Sequence[Entry]) -> None:
        self.prepared = entries


class BrokenWriter(OneKnownWriter):
    """A log that cannot write."""

    async def append(self, entries: Sequence[Entry]) -> AppendResult:
        raise log_unavailable()


class RefusingWriter(OneKnownWriter):
    """A log with other records of the same ids."""

    async def append(self, entries: Sequence[Entry]) -> AppendResult:
        raise RecordIdTakenError({})


def readings() -> list[float]:
    return [REGISTRY.get_sample_value(name) or 0.0 for name in NAMES]


async def test_a_commit_counts_new_and_repeated_records() -> None:
    before = readings()
    await MeteredWriter(OneKnownWriter()).append([an_entry() for _ in range(3)])
    assert [now - then for now, then in zip(readings(), before, strict=True)] == [2, 1, 0, 3, 1]


async def test_a_failed_commit_counts_as_one() -> None:
    before = readings()
    with pytest.raises(MeshError):
        await MeteredWriter(BrokenWriter()).append([an_entry()])
    assert [now - then for now, then in zip(readings(), before, strict=True)] == [0, 0, 1, 0, 0]


async def test_a_refused_record_id_is_not_counted_as_a_failed_commit() -> None:
    before = readings()
    with pytest.raises(RecordIdTakenError):
        await MeteredWriter(RefusingWriter()).append([an_entry()])
    assert readings() == before


async def test_prepare_next_is_delegated() -> None:
    log, entries = OneKnownWriter(), [an_entry()]
    MeteredWriter(log).prepare_next(entries)
    assert log.prepared is entries
