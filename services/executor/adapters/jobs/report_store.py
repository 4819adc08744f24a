"""Events and questions of jobs in PostgreSQL. What tools report is stored encrypted, bound to its job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Row

from libs.common.sealing import Seal, SealError
from services.executor.adapters.jobs.report_rows import NumberedReport, ReportRows
from services.executor.domain import errors
from services.executor.domain.jobs.event import InputAsked, JobEvent, LogEntry, Report, ReportBatch, kind_of
from services.executor.domain.jobs.job import ClaimedJob, JobOwner, PendingQuestion
from services.executor.domain.states import State

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)
# Stands for a report that no key opens any more: its sequence must not be missing.
_UNREADABLE = LogEntry("warning", "This event cannot be decrypted.")


class PostgresReports:
    """Stores and reads what runs of jobs report."""

    def __init__(self, rows: ReportRows, seal: Seal) -> None:
        self._rows, self._seal = rows, seal

    async def events(self, invocation_id: str, after: int, limit: int) -> Sequence[JobEvent]:
        """Return events behind a sequence, in order."""
        return [self._event(row) for row in await self._rows.events(invocation_id, after, limit)]

    async def events_of(self, readers: Mapping[str, int], limit: int) -> dict[str, list[JobEvent]]:
        """Return the events of many jobs, each behind a sequence, in order. At most `limit` of each job."""
        found: defaultdict[str, list[JobEvent]] = defaultdict(list)
        for row in await self._rows.events_of(readers, limit):
            found[row.invocation_id].append(self._event(row))
        return found

    async def progress(self, invocation_ids: Sequence[str]) -> dict[str, tuple[int, bool]]:
        """Return the sequence of the last event of each job that exists, and whether the job ended."""
        rows = await self._rows.progress(invocation_ids)
        return {row.invocation_id: (row.sequence, row.ended) for row in rows}

    async def last_question(self, invocation_id: str) -> InputAsked | None:
        """Return what the tool of a job asked last; None if it never asked."""
        row = await self._rows.last_question(invocation_id)
        report = None if row is None else self._report(row)
        return report if isinstance(report, InputAsked) else None

    async def append(self, batches: Sequence[ReportBatch]) -> Collection[str]:
        """Store batches as events, each once however often it is given; return the ids of the jobs that are held."""
        reports = [
            NumberedReport(batch.invocation_id, batch.attempt, number, kind_of(report), self._sealed(batch, report))
            for batch in batches
            for number, report in enumerate(batch.reports, batch.first)
        ]
        return {row.invocation_id for row in await self._rows.append(reports)}

    async def ask(self, job: ClaimedJob, asked: InputAsked, schema: bytes) -> str | None:
        """Store a question, and return its id; None if the job is no longer held."""
        held = await self._rows.ask(
            job.invocation_id,
            job.attempt,
            input_id=asked.input_id,
            schema=self._seal.seal(schema, _input_context(job.invocation_id, asked.input_id)),
            report=self._sealed(job, asked),
        )
        return asked.input_id if held else None

    async def take_answer(self, job: ClaimedJob, input_id: str) -> bytes | None:
        """Return the answer to a question, and let the job run again; None if there is none."""
        sealed = await self._rows.take_answer(job.invocation_id, job.attempt, input_id)
        return None if sealed is None else self._seal.open(sealed, _input_context(job.invocation_id, input_id))

    async def question(self, owner: JobOwner, invocation_id: str) -> PendingQuestion | None:
        """Return the question that a job waits with; None if the owner has no such job."""
        row = await self._rows.question(owner, invocation_id)
        if row is None or not row.input_id:
            return None if row is None else PendingQuestion("")
        try:
            schema = self._seal.open(row.input_schema, _input_context(invocation_id, row.input_id))
        except SealError:
            raise errors.unexpected() from None
        return PendingQuestion(row.input_id, schema)

    async def answer(self, owner: JobOwner, invocation_id: str, input_id: str, content: bytes) -> bool:
        """Store the answer to a question; return False, and change nothing, if the job does not wait with it."""
        sealed = self._seal.seal(content, _input_context(invocation_id, input_id))
        return await self._rows.answer(owner, invocation_id, input_id=input_id, answer=sealed)

    async def renew_attachments(self, invocation_ids: Collection[str]) -> None:
        """Note that streams are attached to these jobs."""
        await self._rows.renew_attachments(invocation_ids)

    async def cancel_detached(self) -> int:
        """Request the cancellation of jobs that no stream is attached to any more and that ask for it, and of the
        parts of jobs that are cancelled."""
        return await self._rows.cancel_detached()

    def _sealed(self, job: ReportBatch | ClaimedJob, report: Report) -> bytes:
        return self._seal.seal(_ENCODER.encode(report), _report_context(job.invocation_id))

    def _event(self, row: Row[Any]) -> JobEvent:
        report = None if row.report is None else self._report(row)
        return JobEvent(row.sequence, row.create_time, State(row.state), row.reason, report)

    def _report(self, row: Row[Any]) -> Report:
        try:
            return _DECODER.decode(self._seal.open(row.report, _report_context(row.invocation_id)))
        except (SealError, msgspec.DecodeError):
            return _UNREADABLE


def _report_context(invocation_id: str) -> str:
    return f"jobs/{invocation_id}/report"


def _input_context(invocation_id: str, input_id: str) -> str:
    return f"jobs/{invocation_id}/inputs/{input_id}"
