"""SQL of jobs. Every change of a job also writes its event, in one statement.

Times are the database's, so that replicas with different clocks agree on when a lease expires. A claim is identified by
its attempt: a replica that lost its claim and comes back changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import transaction
from services.executor.adapters.checkpoints.postgres_checkpoints import insert_checkpoint
from services.executor.adapters.jobs.report_rows import (
    ATTACHED_SECONDS,
    CANCEL_CHILDREN,
    HELD,
    INSERT_TRANSITION,
    OWN,
    held_by,
    own_job,
)
from services.executor.adapters.jobs.statements import Statements
from services.executor.domain.jobs.job import JobFilter, JobOwner

# Seconds of waiting that raise the priority of a job by one.
AGING_SECONDS = 30
_SWEEP_ROWS = 500
# Longer than a delivery is tried.
_KEEP_DELIVERIES = timedelta(days=7)
# Claims are made one at a time, so that the bounds hold across replicas.
_CLAIM_LOCK = text("select pg_advisory_xact_lock(hashtext('toolmesh.executor.jobs'))")

_COLUMNS = (
    "invocation_id, tenant, subject, tool_version, tool_digest, state, sequence, attempt, executor_id, create_time,"
    " deadline, start_time, end_time, cancel_requested, key, task_id, native_call_id, trace_id, failed,"
    " cancel_when_detached, resumed_from, parent, ticket"
)

_WAITING = text("""
select count(*) as in_all, count(*) filter (where tenant = :tenant) as of_tenant,
       coalesce(sum(octet_length(request)) filter (where tenant = :tenant), 0)::bigint as bytes_of_tenant
from jobs where end_time is null and owner = ''
""")
_ADD = text(f"""
with added as (
  insert into jobs (invocation_id, tenant, subject, session, tool, key, arguments_digest, tool_version, tool_digest,
                    state, priority, request, cancel_when_detached, task_id, native_call_id, trace_id,
                    resumable_request, resumed_from, callback, parent, ticket, awaits_ticket, sequence, create_time,
                    retry_time, deadline, expire_time)
  values (:invocation_id, :tenant, :subject, :session, :tool, :key, :arguments_digest, :tool_version, :tool_digest,
          :state, :priority, :request, :cancel_when_detached, :task_id, :native_call_id, :trace_id,
          :resumable_request, :resumed_from, :callback, :parent, :ticket, :awaits_ticket,
          cardinality(cast(:states as text[])), now(), now(), now() + :max_duration, now() + :max_duration + :keep)
  on conflict (tenant, subject, session, tool, key) where key <> '' do nothing
  returning invocation_id, create_time
), attached as (
  insert into job_attachments select invocation_id, now() + :attached from added where :cancel_when_detached
)
{INSERT_TRANSITION} select added.invocation_id, entered.sequence, entered.state,
       case when entered.state = 'awaiting_approval' then :ticket else '' end, added.create_time
from added, unnest(cast(:states as text[])) with ordinality as entered (state, sequence)
""")  # noqa: S608  (made of constants)
_BY_KEY = text(f"""
select {_COLUMNS}, null::bytea as outcome, arguments_digest from jobs
where tenant = :tenant and subject = :subject and session = :session and tool = :tool and key = :key and key <> ''
""")  # noqa: S608
_GET = text(f"select {_COLUMNS}, outcome from jobs where {OWN}")  # noqa: S608
_PAGE = text(f"""
select {_COLUMNS}, null::bytea as outcome from jobs
where tenant = :tenant and subject = :subject
  and (cardinality(cast(:states as text[])) = 0 or state = any(cast(:states as text[])))
  and (:tool = '' or tool = :tool)
  and (cast(:start_time as timestamptz) is null or create_time >= :start_time)
  and (cast(:end_time as timestamptz) is null or create_time < :end_time)
  and (cast(:after_time as timestamptz) is null or (create_time, invocation_id) < (:after_time, :after_id))
order by create_time desc, invocation_id desc limit :max_rows
""")  # noqa: S608
_TYPICAL_SECONDS = text("""
select percentile_cont(0.5) within group (order by extract(epoch from end_time - start_time)::float8) as seconds
from (
  select start_time, end_time from jobs
  where tenant = :tenant and tool_version = :tool_version and state = 'succeeded' and start_time is not null
  order by end_time desc limit 20
) recent
""")
_REQUEST_CANCEL = text(f"""
update jobs set cancel_requested = true, awaits_ticket = false, retry_time = least(retry_time, now())
where {OWN} and end_time is null
""")  # noqa: S608
_ANY_CLAIMABLE = text("""
select 1 from jobs where end_time is null and not awaits_ticket and (owner = '' or lease_until <= now())
  and retry_time <= now() limit 1
""")
# The most urgent first: by priority, which grows with waiting, then each tenant in turn, then by age. It grows without
# a bound, so that of two jobs that wait equally long the higher one stays first, and a job is overtaken only by those
# that are started within 30 s for each level between them. A job whose replica disappeared is claimed like one that
# waits; its tool ran, so the event says that it is taken over.
_CLAIM = text(f"""
with held as (
  select tenant, tool from jobs where end_time is null and owner <> '' and lease_until > now()
), per_tenant as (select tenant, count(*) as n from held group by tenant
), per_tool as (select tool, count(*) as n from held group by tool
), waiting as (
  select invocation_id, tenant, tool, create_time, state in ('running', 'needs_input') as interrupted,
         priority + floor(extract(epoch from now() - create_time) / {AGING_SECONDS}) as urgency
  from jobs where end_time is null and not awaits_ticket and (owner = '' or lease_until <= now())
    and retry_time <= now() and not tool_version = any(cast(:without as text[]))
), in_turn as (
  select w.*, coalesce(t.n, 0)
              + row_number() over (partition by w.tenant order by urgency desc, create_time) as turn
  from waiting w left join per_tenant t using (tenant)
), ranked as (
  select i.*, coalesce(o.n, 0)
              + row_number() over (partition by i.tool order by urgency desc, turn, create_time) as turn_of_tool
  from in_turn i left join per_tool o using (tool) where turn <= :per_tenant
), chosen as (
  select invocation_id, interrupted from ranked where turn_of_tool <= :per_tool
  order by urgency desc, turn, create_time limit :max_jobs
), claimed as (
  update jobs j set owner = :owner, executor_id = :executor_id, attempt = attempt + 1, lease_until = now() + :lease,
         losses = losses + cast(c.interrupted as int), sequence = sequence + cast(c.interrupted as int),
         state = case when c.interrupted then 'yielded' else state end,
         reported = 0, input_id = '', input_schema = null, answer = null
  from chosen c where j.invocation_id = c.invocation_id
    -- Its replica may have come back since it was chosen.
    and j.end_time is null and not j.awaits_ticket and (j.owner = '' or j.lease_until <= now())
    and (j.state in ('running', 'needs_input')) = c.interrupted
  returning j.invocation_id, j.attempt, j.losses, j.resumed_from, j.ticket, j.request, j.cancel_requested, j.state,
            j.sequence, c.interrupted,
            greatest(extract(epoch from j.deadline - now()), 0)::float8 as seconds_left
), taken_over as (
  {INSERT_TRANSITION} select invocation_id, sequence, state, 'taken over', now() from claimed where interrupted
)
select invocation_id, attempt, losses, resumed_from, ticket, request, cancel_requested, seconds_left, interrupted
from claimed
""")  # noqa: S608
_BEGIN = text(f"""
with begun as (
  update jobs set state = 'running', sequence = sequence + 1, start_time = coalesce(start_time, now()) where {HELD}
  and state not in ('running', 'needs_input') returning invocation_id, sequence
)
{INSERT_TRANSITION} select invocation_id, sequence, 'running', :source, now() from begun
""")  # noqa: S608
_FINISH = text(f"""
with ended as (
  update jobs set state = :state, sequence = sequence + 1, end_time = now(), owner = '', request = null,
         input_schema = null, answer = null, failed = :failed, outcome = :outcome, expire_time = now() + :keep,
         callback = null, resumable_request = case when :state = 'succeeded' then null else resumable_request end
  from (select invocation_id as id, callback as reported from jobs where {HELD} for update) as former
  where invocation_id = former.id
  returning invocation_id, sequence, tenant, subject, former.reported
), queued as (
  insert into callback_deliveries (invocation_id, tenant, subject, state, callback, end_time, next_time, expire_time)
  select invocation_id, tenant, subject, :state, reported, now(), now(), now() + :keep_deliveries
  from ended where reported is not null
)
{INSERT_TRANSITION} select invocation_id, sequence, :state, :reason, now() from ended
""")  # noqa: S608
_GIVE_BACK = text(f"""
update jobs set owner = '', lease_until = now(), retry_time = now() + :delay where {HELD}
""")  # noqa: S608
# Locked in order, because reports of the same jobs are stored at the same time.
_RENEW = text("""
with held as (
  select j.invocation_id from jobs j
  join unnest(cast(:ids as text[]), cast(:attempts as int[])) as input (invocation_id, attempt)
    on j.invocation_id = input.invocation_id and j.attempt = input.attempt
  where j.owner = :owner and j.end_time is null order by j.invocation_id for update of j
)
update jobs j set lease_until = now() + :lease from held where j.invocation_id = held.invocation_id
returning j.invocation_id, j.cancel_requested,
          case when j.state = 'needs_input' and j.answer is not null then j.input_id else '' end as answered
""")
_REQUESTS = text("""
select j.invocation_id, j.cancel_requested,
       case when j.state = 'needs_input' and j.answer is not null then j.input_id else '' end as answered
from jobs j join unnest(cast(:ids as text[]), cast(:attempts as int[])) as input (invocation_id, attempt)
  on j.invocation_id = input.invocation_id and j.attempt = input.attempt
where j.owner = :owner and j.end_time is null and (j.cancel_requested or j.answer is not null)
""")
_SWEEP = text("""
delete from jobs where ctid in (
  select ctid from jobs j where expire_time <= now() and end_time is not null
    and not exists (select from checkpoints c where c.invocation_id = j.invocation_id and c.kind = 'named')
  limit :max_rows
) and expire_time <= now() and end_time is not null
""")


class JobRows:
    """Reads and writes the rows of jobs and their events."""

    def __init__(self, engine: AsyncEngine, *, owner: str, executor_id: str, lease: float, keep: float) -> None:
        self._engine, self._owner, self._executor_id = engine, owner, executor_id
        # Those of callers, of runs, and of renewals: none of them waits for the others.
        self._callers, self._runs, self._renewals = (Statements(engine, most) for most in (2, 2, 1))
        self._lease, self._keep = timedelta(seconds=lease), timedelta(seconds=keep)

    async def count_waiting(self, tenant: str) -> Row[Any]:
        """Return how many jobs wait in all, how many of a tenant, and the bytes of the latter."""
        rows = await self._callers.all(_WAITING, {"tenant": tenant})
        return rows[0]

    async def add(
        self, values: dict[str, Any], *, max_seconds: float, checkpoint: dict[str, Any] | None = None
    ) -> bool:
        """Insert a job with the events of its states and its first checkpoint; return False if its key has a job."""
        attached = timedelta(seconds=ATTACHED_SECONDS)
        durations = {"max_duration": timedelta(seconds=max_seconds), "keep": self._keep, "attached": attached}
        if checkpoint is None:
            return await self._callers.change(_ADD, {**values, **durations}) > 0
        async with transaction(self._engine) as connection:
            if not (await connection.execute(_ADD, {**values, **durations})).rowcount:
                return False
            await insert_checkpoint(connection, checkpoint)
            return True

    async def find_by_key(self, values: dict[str, Any]) -> Row[Any] | None:
        """Return the job of a key, with the digest of its arguments."""
        return await self._callers.first(_BY_KEY, values)

    async def get(self, owner: JobOwner, invocation_id: str) -> Row[Any] | None:
        """Return a job of an owner."""
        return await self._callers.first(_GET, own_job(owner, invocation_id))

    async def page(self, wanted: JobFilter, max_rows: int, after: tuple[datetime, str] | None) -> Sequence[Row[Any]]:
        """Return jobs of an owner, newest first."""
        values = {
            "tenant": wanted.owner.tenant,
            "subject": wanted.owner.subject,
            "states": [str(state) for state in wanted.states],
            "tool": wanted.tool,
            "start_time": wanted.start_time,
            "end_time": wanted.end_time,
            "after_time": after[0] if after else None,
            "after_id": after[1] if after else "",
            "max_rows": max_rows,
        }
        return await self._callers.all(_PAGE, values)

    async def typical_seconds(self, tenant: str, tool_version: str) -> float | None:
        """Return the median run time of the last jobs of a tool version that succeeded."""
        row = await self._callers.first(_TYPICAL_SECONDS, {"tenant": tenant, "tool_version": tool_version})
        return None if row is None else row.seconds

    async def request_cancel(self, owner: JobOwner, invocation_id: str) -> None:
        """Request the cancellation of a job that has not ended, and of its parts."""
        if await self._callers.change(_REQUEST_CANCEL, own_job(owner, invocation_id)):
            # Those of the parts are one round each.
            while await self._callers.change(CANCEL_CHILDREN, {}):
                continue

    async def claim(
        self, max_jobs: int, without: Sequence[str], *, per_tenant: int, per_tool: int
    ) -> Sequence[Row[Any]]:
        """Claim jobs, within the bounds of what all replicas run for one tenant and of one tool."""
        # Most signals bring nothing to claim. Then the lock that all replicas share is left alone.
        if await self._renewals.first(_ANY_CLAIMABLE, {}) is None:
            return ()
        values = {
            "owner": self._owner,
            "executor_id": self._executor_id,
            "lease": self._lease,
            "max_jobs": max_jobs,
            "per_tenant": per_tenant,
            "per_tool": per_tool,
            "without": list(without),
        }
        async with transaction(self._engine) as connection:
            await connection.execute(_CLAIM_LOCK)
            return (await connection.execute(_CLAIM, values)).all()

    async def begin(self, invocation_id: str, attempt: int, source: str) -> bool:
        """Note that the tool starts, and from which checkpoint; return whether the job is held."""
        return await self._runs.change(_BEGIN, {**self._held(invocation_id, attempt), "source": source}) > 0

    async def finish(
        self, invocation_id: str, attempt: int, *, state: str, reason: str, failed: bool, outcome: bytes
    ) -> bool:
        """End a job; return whether it was held."""
        values = {"state": state, "reason": reason, "failed": failed, "outcome": outcome, "keep": self._keep}
        values["keep_deliveries"] = max(self._keep, _KEEP_DELIVERIES)
        return await self._runs.change(_FINISH, {**self._held(invocation_id, attempt), **values}) > 0

    async def give_back(self, invocation_id: str, attempt: int, delay: float) -> None:
        """End a claim; the job is not claimed again before the delay is over."""
        values = {**self._held(invocation_id, attempt), "delay": timedelta(seconds=delay)}
        await self._runs.change(_GIVE_BACK, values)

    async def renew(self, held: Sequence[tuple[str, int]]) -> Sequence[Row[Any]]:
        """Renew claims; return those still held: whether their cancellation is requested, and the answered question."""
        values = {
            "ids": [invocation_id for invocation_id, _ in held],
            "attempts": [attempt for _, attempt in held],
            "owner": self._owner,
            "lease": self._lease,
        }
        return await self._renewals.all(_RENEW, values)

    async def requests(self, held: Sequence[tuple[str, int]]) -> Sequence[Row[Any]]:
        """Return the claims whose caller wants something, like `renew`. Changes nothing."""
        values = {
            "ids": [invocation_id for invocation_id, _ in held],
            "attempts": [attempt for _, attempt in held],
            "owner": self._owner,
        }
        return await self._renewals.all(_REQUESTS, values)

    async def sweep(self) -> int:
        """Delete a bounded number of jobs whose time is over; return how many."""
        return await self._renewals.change(_SWEEP, {"max_rows": _SWEEP_ROWS})

    def _held(self, invocation_id: str, attempt: int) -> dict[str, Any]:
        return held_by(self._owner, invocation_id, attempt)
