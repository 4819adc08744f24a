"""Sample calls and their final records, and an in-memory usage store."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.common.v1 import caller_pb2, error_reason_pb2

from services.audit.domain.usage.call import DecodedRecord, LogSegment
from services.audit.domain.usage.cells import Cell, Rollup
from services.audit.domain.usage.tally import Tally
from services.audit.tests.sample import a_record, stamp

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
ALICE, BOB = "did:web:a:alice", "did:web:a:bob"
Page = tuple[Rollup, date]


def a_form(event: str = "invocation_succeeded", *, at: datetime = NOON, **changes: Any) -> dict[str, Any]:
    """Return the canonical form of a final record, with the fields that counting reads."""
    subject, tenant = changes.pop("subject", ALICE), changes.pop("tenant", "acme")
    return {
        "event_class": event,
        "event_time": at.isoformat().replace("+00:00", "Z"),
        "tool_version": "tools/core.echo/versions/1.0.0",
        "tool_digest": "sha256:e",
        "caller": {"subject": subject, "tenant": tenant},
        "status": "success" if event == "invocation_succeeded" else "error",
        "attempt": 1,
        "latency_us": 1000,
        **changes,
    }


def decoded_records(*forms: dict[str, Any] | None, late: timedelta = timedelta(seconds=1)) -> list[DecodedRecord]:
    """Return the forms as decoded records, each logged `late` after its event time."""
    times = [datetime.fromisoformat(form["event_time"]) if form else NOON for form in forms]
    return [DecodedRecord(sequence, form, times[sequence] + late) for sequence, form in enumerate(forms)]  # type: ignore[arg-type]


def an_ending(**changes: Any) -> record_pb.AuditRecord:
    """Return a final record as the executor writes it; a success unless changed."""
    subject, tenant = changes.pop("subject", ALICE), changes.pop("tenant", "acme")
    latency_us, at = changes.pop("latency_us", 1000), changes.pop("at", datetime.now(UTC))
    fields: dict[str, Any] = {
        "event_class": record_pb.EVENT_CLASS_INVOCATION_SUCCEEDED,
        "event_time": stamp(at),
        "status": record_pb.RECORD_STATUS_SUCCESS,
        "tool_digest": "sha256:e",
        "caller": caller_pb2.Caller(subject=subject, tenant=tenant),
        "attempt": 1,
        **changes,
    }
    record = a_record(**fields)
    record.latency.FromMicroseconds(latency_us)
    return record


def a_failure(reason: str = "EXECUTION_FAILED", **changes: Any) -> record_pb.AuditRecord:
    """Return the record of a failed call."""
    return an_ending(
        event_class=record_pb.EVENT_CLASS_INVOCATION_FAILED,
        status=record_pb.RECORD_STATUS_ERROR,
        error_reason=error_reason_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}"),
        **changes,
    )


def a_decision(**changes: Any) -> record_pb.AuditRecord:
    """Return the record of a permit."""
    return an_ending(
        event_class=record_pb.EVENT_CLASS_PERMISSION_DECIDED, status=record_pb.RECORD_STATUS_UNSPECIFIED, **changes
    )


class InMemoryUsageStore:
    """Counts in memory. A transaction takes effect when it ends without an error."""

    def __init__(self, log: Iterable[DecodedRecord] = (), *, segment_size: int = 7) -> None:
        self.log, self._segment_size = list(log), segment_size
        self.cells: dict[Cell, Tally] = {}
        self.pages: dict[Page, int] = {}
        self.position = 0
        self.taken = False
        self.cuts: list[int] = []
        """Positions whose transaction fails once, after saving and before taking effect."""
        self.done = asyncio.Event()

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[InMemoryCountingTransaction | None]:
        if self.taken:
            yield None
            return
        transaction = InMemoryCountingTransaction(self, self._segment_size)
        yield transaction
        if transaction.position in self.cuts:
            self.cuts.remove(transaction.position)
            raise ConnectionError("cut")
        self.cells, self.pages, self.position = transaction.cells, transaction.pages, transaction.position
        if self.position == len(self.log):
            self.done.set()


class InMemoryCountingTransaction:
    """A transaction on copies of all counts."""

    def __init__(self, store: InMemoryUsageStore, segment_size: int) -> None:
        self.cells, self.pages = copy.deepcopy(store.cells), dict(store.pages)
        self.position, self._log, self._segment_size = store.position, store.log, segment_size

    async def read_segment(self) -> LogSegment:
        end = min(self.position + self._segment_size, len(self._log))
        return LogSegment(self.position, end, self._log[self.position : end], more=end < len(self._log))

    async def find_tallies(self, cells: Iterable[Cell]) -> dict[Cell, Tally]:
        return {cell: copy.deepcopy(self.cells[cell]) for cell in cells if cell in self.cells}

    async def count_cells(self, pages: Iterable[Page]) -> dict[Page, int]:
        return {page: self.pages[page] for page in pages if page in self.pages}

    async def save(self, tallies: Mapping[Cell, Tally], sizes: Mapping[Page, int], position: int) -> None:
        self.cells.update(tallies)
        self.pages.update(sizes)
        self.position = position
