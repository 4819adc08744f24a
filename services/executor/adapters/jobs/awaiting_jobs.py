"""Jobs in PostgreSQL that wait for the approval of their ticket. No replica holds them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sealing import Seal
from services.executor.adapters.jobs.job_store import open_request
from services.executor.adapters.jobs.report_rows import HELD, INSERT_TRANSITION, held_by
from services.executor.adapters.jobs.statements import Statements
from services.executor.domain.jobs.job import AwaitingJob, ClaimedJob

# How long after a look at its ticket the next one follows: a tenth of the time that the job has waited, within these.
MIN_DELAY, MAX_DELAY = timedelta(seconds=1), timedelta(seconds=10)

# The new time keeps other replicas from looking at the same ticket.
_DUE = text("""
update jobs j set retry_time = now() + least(:max_delay, greatest(:min_delay, (now() - j.create_time) / 10))
from (
  select invocation_id from jobs where awaits_ticket and end_time is null and retry_time <= now()
  order by retry_time limit :max_rows for update skip locked
) as due
where j.invocation_id = due.invocation_id
returning j.invocation_id, j.ticket, j.request,
          greatest(extract(epoch from j.deadline - now()), 0)::float8 as seconds_left
""")
_AWAIT = text(f"""
with waiting as (
  update jobs set owner = '', lease_until = now(), retry_time = now() + :min_delay, state = 'awaiting_approval',
         sequence = sequence + 1, ticket = :ticket, awaits_ticket = not cancel_requested where {HELD}
  returning invocation_id, sequence
)
{INSERT_TRANSITION} select invocation_id, sequence, 'awaiting_approval', :ticket, now() from waiting
""")  # noqa: S608  (made of constants)
_RELEASE = text("""
update jobs set awaits_ticket = false, retry_time = now()
where invocation_id = :invocation_id and ticket = :ticket and awaits_ticket and end_time is null
""")
_APPROVE = text(f"""
with released as (
  update jobs set awaits_ticket = false, retry_time = now(), state = 'queued', sequence = sequence + 2
  where invocation_id = :invocation_id and ticket = :ticket and awaits_ticket and end_time is null
  returning invocation_id, sequence
)
{INSERT_TRANSITION} select invocation_id, sequence - 1, 'approved', cast(:ticket as text), now() from released
union all select invocation_id, sequence, 'queued', '', now() from released
""")  # noqa: S608


class PostgresAwaitingJobs:
    """Finds the jobs whose tickets are to be looked at, and lets them go on."""

    def __init__(self, engine: AsyncEngine, seal: Seal, *, owner: str) -> None:
        self._rows, self._seal, self._owner = Statements(engine, 1), seal, owner

    async def due(self, limit: int) -> Sequence[AwaitingJob]:
        """Implement `AwaitingJobs.due`."""
        rows = await self._rows.all(_DUE, {"max_rows": limit, "min_delay": MIN_DELAY, "max_delay": MAX_DELAY})
        found = []
        for row in rows:
            sealed = open_request(self._seal, row.invocation_id, row.request)
            request, token = (None, "") if sealed is None else (sealed.request, sealed.token)
            found.append(AwaitingJob(row.invocation_id, row.ticket, request, token, row.seconds_left))
        return found

    async def wait(self, job: ClaimedJob, ticket: str) -> None:
        """Implement `AwaitingJobs.wait`."""
        held = held_by(self._owner, job.invocation_id, job.attempt)
        await self._rows.change(_AWAIT, {**held, "ticket": ticket, "min_delay": MIN_DELAY})

    async def release(self, job: AwaitingJob, *, approved: bool) -> None:
        """Implement `AwaitingJobs.release`."""
        values = {"invocation_id": job.invocation_id, "ticket": job.ticket}
        await self._rows.change(_APPROVE if approved else _RELEASE, values)
