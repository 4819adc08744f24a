"""SQL of what runs report and ask, and of the streams that are attached to jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.executor.adapters.jobs.statements import Statements
from services.executor.domain.jobs.job import JobOwner

ATTACHED_SECONDS = 30.0
# A page of events has at most so many bytes, or one event.
PAGE_BYTES = 1 << 20
_SWEEP_ROWS = 500

OWN = "invocation_id = :invocation_id and tenant = :tenant and subject = :subject"
HELD = "invocation_id = :invocation_id and attempt = :attempt and owner = :owner and end_time is null"
INSERT_TRANSITION = "insert into job_events (invocation_id, sequence, state, reason, create_time)"
_INSERT_EVENT = "insert into job_events (invocation_id, sequence, kind, state, reason, report, create_time)"
_COLUMNS = "invocation_id, sequence, create_time, kind, state, reason, report"
_PAGE = f"""
select {_COLUMNS} from (
  select *, row_number() over (order by sequence) as place,
         sum(coalesce(octet_length(report), 0)) over (order by sequence) as size
  from (select {_COLUMNS} from job_events e where {{condition}} order by sequence limit :max_rows) as page
) as measured where place = 1 or size <= {PAGE_BYTES}
"""  # noqa: S608  (made of constants)

_EVENTS = text(_PAGE.format(condition="e.invocation_id = :invocation_id and e.sequence > :after") + "order by sequence")
_EVENTS_OF = text(f"""
select found.* from unnest(cast(:ids as text[]), cast(:afters as bigint[])) as reader (id, after)
cross join lateral ({_PAGE.format(condition="e.invocation_id = reader.id and e.sequence > reader.after")}) as found
order by found.invocation_id, found.sequence
""")  # noqa: S608
_PROGRESS = text("""
select invocation_id, sequence, end_time is not null as ended from jobs where invocation_id = any(cast(:ids as text[]))
""")
_LAST_QUESTION = text("""
select invocation_id, report from job_events where invocation_id = :invocation_id and kind = 'input_request'
order by sequence desc limit 1
""")
# Reports of an attempt are numbered: those that are stored already are left out. Jobs are locked in order, because
# their claims are renewed at the same time.
_APPEND = text(f"""
with input as (
  select * from unnest(cast(:ids as text[]), cast(:attempts as int[]), cast(:numbers as bigint[]),
                       cast(:kinds as text[]), cast(:reports as bytea[]))
    as input (invocation_id, attempt, number, kind, report)
), held as (
  select j.invocation_id, j.reported, j.sequence, j.state from jobs j
  join (select distinct invocation_id, attempt from input) as i
    on j.invocation_id = i.invocation_id and j.attempt = i.attempt
  where j.owner = :owner and j.end_time is null order by j.invocation_id for update of j
), fresh as (
  select h.invocation_id, h.sequence + i.number - h.reported as sequence, h.state, i.number, i.kind, i.report
  from held h join input i on i.invocation_id = h.invocation_id where i.number > h.reported
), counted as (
  update jobs j set sequence = j.sequence + c.reports, reported = c.last
  from (select invocation_id, count(*) as reports, max(number) as last from fresh group by invocation_id) as c
  where j.invocation_id = c.invocation_id
), stored as (
  {_INSERT_EVENT} select invocation_id, sequence, kind, state, '', report, clock_timestamp() from fresh
)
select invocation_id from held
""")  # noqa: S608
_ASK = text(f"""
with asked as (
  update jobs set state = 'needs_input', sequence = sequence + 2, input_id = :input_id, input_schema = :schema,
         answer = null where {HELD} and input_id <> :input_id returning invocation_id, sequence
), stored as (
  {_INSERT_EVENT}
  select invocation_id, sequence - 1, 'transition', 'needs_input', '', null, now() from asked
  union all select invocation_id, sequence, 'input_request', 'needs_input', '', cast(:report as bytea), now() from asked
)
select invocation_id from jobs where {HELD}
""")  # noqa: S608
_TAKE_ANSWER = text(f"""
with running as (
  update jobs set state = 'running', sequence = sequence + 1
  where {HELD} and input_id = :input_id and answer is not null and state = 'needs_input'
  returning invocation_id, sequence
), stored as (
  {INSERT_TRANSITION} select invocation_id, sequence, 'running', 'input received', now() from running
)
select answer from jobs where {HELD} and input_id = :input_id and answer is not null
""")  # noqa: S608
_QUESTION = text(f"""
select case when state = 'needs_input' and answer is null then input_id else '' end as input_id, input_schema
from jobs where {OWN}
""")  # noqa: S608
_ANSWER = text(f"""
update jobs set answer = :answer
where {OWN} and state = 'needs_input' and input_id = :input_id and answer is null and end_time is null
""")  # noqa: S608
_RENEW_ATTACHMENTS = text("""
with attached as (
  select invocation_id from job_attachments where invocation_id = any(cast(:ids as text[]))
  order by invocation_id for update
)
update job_attachments a set attached_until = now() + :attached from attached
where a.invocation_id = attached.invocation_id
""")
# By the parents that are cancelled, however they came to be, so that a part that is added at the same time is met by
# the next round at the latest.
CANCEL_CHILDREN = text("""
update jobs c set cancel_requested = true, awaits_ticket = false, retry_time = least(c.retry_time, now())
from jobs p where c.parent = p.invocation_id and c.parent <> '' and p.cancel_requested and c.end_time is null
  and not c.cancel_requested
""")
_CANCEL_DETACHED = text("""
with detached as (
  delete from job_attachments where invocation_id in (
    select invocation_id from job_attachments where attached_until <= now()
    order by invocation_id for update skip locked limit :max_rows
  ) returning invocation_id
)
update jobs j set cancel_requested = true, awaits_ticket = false, retry_time = least(retry_time, now()) from detached
where j.invocation_id = detached.invocation_id and j.end_time is null and not j.cancel_requested
""")


class NumberedReport(NamedTuple):
    """A sealed report of an attempt of a job."""

    invocation_id: str
    attempt: int
    number: int
    kind: str
    report: bytes


class ReportRows:
    """Reads and writes the rows of events, questions and attachments."""

    def __init__(self, engine: AsyncEngine, *, owner: str) -> None:
        self._owner = owner
        # Those of callers, of runs, and of the two that serve all of them: none of them waits for the others.
        self._callers, self._runs, self._reports, self._readers = (Statements(engine, most) for most in (1, 1, 1, 1))

    async def events(self, invocation_id: str, after: int, max_rows: int) -> Sequence[Row[Any]]:
        """Return events behind a sequence, in order."""
        return await self._callers.all(_EVENTS, {"invocation_id": invocation_id, "after": after, "max_rows": max_rows})

    async def events_of(self, readers: Mapping[str, int], max_rows: int) -> Sequence[Row[Any]]:
        """Return the events of many jobs, each behind a sequence, in order."""
        values = {"ids": list(readers), "afters": list(readers.values()), "max_rows": max_rows}
        return await self._readers.all(_EVENTS_OF, values)

    async def progress(self, invocation_ids: Sequence[str]) -> Sequence[Row[Any]]:
        """Return the last sequence of jobs, and whether they ended."""
        return await self._readers.all(_PROGRESS, {"ids": list(invocation_ids)})

    async def last_question(self, invocation_id: str) -> Row[Any] | None:
        """Return the event of the last question of a job."""
        rows = await self._callers.all(_LAST_QUESTION, {"invocation_id": invocation_id})
        return rows[0] if rows else None

    async def append(self, reports: Sequence[NumberedReport]) -> Sequence[Row[Any]]:
        """Store reports of jobs that are held, and return those jobs."""
        columns: list[Any] = list(zip(*reports, strict=True))
        names = ("ids", "attempts", "numbers", "kinds", "reports")
        values = {name: list(column) for name, column in zip(names, columns, strict=True)}
        return await self._reports.all(_APPEND, {**values, "owner": self._owner})

    async def ask(self, invocation_id: str, attempt: int, *, input_id: str, schema: bytes, report: bytes) -> bool:
        """Store a question; return whether the job is held."""
        values = {"input_id": input_id, "schema": schema, "report": report}
        return bool(await self._runs.all(_ASK, {**held_by(self._owner, invocation_id, attempt), **values}))

    async def take_answer(self, invocation_id: str, attempt: int, input_id: str) -> bytes | None:
        """Return the answer to a question, and let the job run."""
        values = {**held_by(self._owner, invocation_id, attempt), "input_id": input_id}
        rows = await self._runs.all(_TAKE_ANSWER, values)
        return bytes(rows[0].answer) if rows else None

    async def question(self, owner: JobOwner, invocation_id: str) -> Row[Any] | None:
        """Return the question of a job: its id, empty for none, and its schema."""
        rows = await self._callers.all(_QUESTION, own_job(owner, invocation_id))
        return rows[0] if rows else None

    async def answer(self, owner: JobOwner, invocation_id: str, *, input_id: str, answer: bytes) -> bool:
        """Store an answer; return whether the job waits for it."""
        values = {**own_job(owner, invocation_id), "input_id": input_id, "answer": answer}
        return await self._callers.change(_ANSWER, values) > 0

    async def renew_attachments(self, invocation_ids: Collection[str]) -> None:
        """Renew the time of attached streams."""
        attached = timedelta(seconds=ATTACHED_SECONDS)
        await self._readers.change(_RENEW_ATTACHMENTS, {"ids": list(invocation_ids), "attached": attached})

    async def cancel_detached(self) -> int:
        """Request the cancellation of a bounded number of jobs without attached stream; return how many."""
        detached = await self._readers.change(_CANCEL_DETACHED, {"max_rows": _SWEEP_ROWS})
        return detached + await self._readers.change(CANCEL_CHILDREN, {})


def own_job(owner: JobOwner, invocation_id: str) -> dict[str, Any]:
    """Return the values of OWN."""
    return {"invocation_id": invocation_id, "tenant": owner.tenant, "subject": owner.subject}


def held_by(owner: str, invocation_id: str, attempt: int) -> dict[str, Any]:
    """Return the values of HELD."""
    return {"invocation_id": invocation_id, "attempt": attempt, "owner": owner}
