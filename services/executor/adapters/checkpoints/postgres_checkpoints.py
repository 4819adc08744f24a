"""Macro and named checkpoints in PostgreSQL, encrypted.

Every change locks the row of the job and checks that the attempt has it. So a former attempt that comes back late
stores nothing, and a take-over finds everything that was stored before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from libs.common.sealing import Seal, SealError
from libs.common.sql.engine import separately, transaction
from services.executor.domain.checkpoints.checkpoint import Checkpoint, CheckpointBounds, CheckpointKind
from services.executor.domain.checkpoints.encoding import FULL_EVERY
from services.executor.domain.checkpoints.ports import AddOutcome

_SWEEP_ROWS = 500

# A job that gets further is not the one that its executors die of.
_PROGRESS = text("""
update jobs set losses = 0
where invocation_id = :invocation_id and attempt = :attempt and owner = :owner and end_time is null
""")
_COUNT = text("""
select coalesce(sum(stored_bytes), 0)::bigint as bytes,
       count(*) filter (where invocation_id = :invocation_id and kind = 'macro') as macros,
       count(*) filter (where invocation_id = :invocation_id and kind = 'named' and label <> :label) as named,
       count(*) filter (where invocation_id = :invocation_id and number = :parent_number) as parents
from checkpoints where tenant = :tenant
""")
_REPLACE_NAMED = text("""
delete from checkpoints where invocation_id = :invocation_id and kind = 'named' and label = :label
""")
# Whole chains: what a kept checkpoint is a difference to is kept too.
_TRIM = text("""
delete from checkpoints where invocation_id = :invocation_id and kind = 'macro' and number < (
  select min(number) from (
    select number, parent_number, row_number() over (order by number desc) as age
    from checkpoints where invocation_id = :invocation_id and kind = 'macro'
  ) as macros where parent_number = 0 and age <= :keep
)
""")
_INSERT = text("""
insert into checkpoints (invocation_id, number, attempt, tenant, kind, label, tool_digest, state_bytes, stored_bytes,
                         parent_number, digest, create_time, content)
values (:invocation_id, :number, :attempt, :tenant, :kind, :label, :tool_digest, :state_bytes, :stored_bytes,
        :parent_number, :digest, :create_time, :content)
""")
_FIND = text("""
select c.invocation_id, number, c.attempt, kind, label, c.tool_digest, state_bytes, stored_bytes, parent_number, digest,
       c.create_time, case when kind = 'macro' and j.end_time is not null then j.expire_time end as expire_time
from checkpoints c join jobs j using (invocation_id) where c.invocation_id = :invocation_id
order by number desc
""")
_CONTENT = text("select content from checkpoints where invocation_id = :invocation_id and number = :number")
_DELETE = text("""
with recursive affected as (
  select number, kind from checkpoints where invocation_id = :invocation_id and number = :number
  union all
  select c.number, c.kind from checkpoints c join affected a on c.parent_number = a.number
  where c.invocation_id = :invocation_id
)
delete from checkpoints where invocation_id = :invocation_id and number in (select number from affected)
""")
_SWEEP = text("""
delete from checkpoints where (invocation_id, number) in (
  select c.invocation_id, c.number from jobs j join checkpoints c using (invocation_id)
  where j.end_time is not null and j.expire_time <= now() and c.kind = 'macro' limit :max_rows
)
""")


class PostgresCheckpoints:
    """The checkpoints that outlive their run."""

    def __init__(self, engine: AsyncEngine, seal: Seal, bounds: CheckpointBounds, *, owner: str) -> None:
        """`owner` is the one that this process claims jobs as."""
        self._engine, self._seal, self._bounds, self._owner = engine, seal, bounds, owner

    async def note_progress(self, invocation_id: str, attempt: int) -> bool:
        """Note that an attempt got further; return False if another one has the job. Raises SERVICE_UNAVAILABLE."""
        values = {"invocation_id": invocation_id, "attempt": attempt, "owner": self._owner}
        async with separately(self._engine) as connection:
            return (await connection.execute(_PROGRESS, values)).rowcount > 0

    async def add(self, tenant: str, checkpoint: Checkpoint, content: bytes) -> AddOutcome:
        """Store a checkpoint, if its attempt has the job. Raises SERVICE_UNAVAILABLE."""
        values = checkpoint_columns(self._seal, tenant, checkpoint, content)
        held = {"invocation_id": checkpoint.invocation_id, "attempt": checkpoint.attempt, "owner": self._owner}
        async with transaction(self._engine) as connection:
            if not (await connection.execute(_PROGRESS, held)).rowcount:
                return AddOutcome.NOT_HELD
            count = (await connection.execute(_COUNT, values)).one()
            if checkpoint.parent_number and not count.parents:
                return AddOutcome.NO_PARENT
            if self._is_full(checkpoint, count):
                return AddOutcome.FULL
            if checkpoint.label:
                await connection.execute(_REPLACE_NAMED, values)
            await connection.execute(_INSERT, values)
            if count.macros >= self._bounds.macros and not checkpoint.parent_number:
                keep = max(self._bounds.macros - FULL_EVERY, 1)
                await connection.execute(_TRIM, {"invocation_id": checkpoint.invocation_id, "keep": keep})
        return AddOutcome.STORED

    async def find(self, invocation_id: str) -> Sequence[Checkpoint]:
        """Return the checkpoints of a job, newest first. Raises SERVICE_UNAVAILABLE."""
        async with separately(self._engine) as connection:
            rows = (await connection.execute(_FIND, {"invocation_id": invocation_id})).all()
        return [_checkpoint(row) for row in rows]

    async def content(self, invocation_id: str, number: int) -> bytes | None:
        """Return what was stored; None if it is gone or cannot be decrypted. Raises SERVICE_UNAVAILABLE."""
        values = {"invocation_id": invocation_id, "number": number}
        async with separately(self._engine) as connection:
            sealed = (await connection.execute(_CONTENT, values)).scalar()
        try:
            return None if sealed is None else self._seal.open(sealed, seal_context(invocation_id, number))
        except SealError:
            return None

    async def delete(self, invocation_id: str, number: int) -> None:
        """Delete a checkpoint, and those that are differences to it. Raises SERVICE_UNAVAILABLE."""
        async with separately(self._engine) as connection:
            await connection.execute(_DELETE, {"invocation_id": invocation_id, "number": number})

    async def sweep(self) -> int:
        """Delete a bounded number of macro checkpoints of jobs whose time is over; return how many."""
        async with separately(self._engine) as connection:
            return (await connection.execute(_SWEEP, {"max_rows": _SWEEP_ROWS})).rowcount

    def _is_full(self, checkpoint: Checkpoint, count: Row[Any]) -> bool:
        named = checkpoint.kind is CheckpointKind.NAMED and count.named >= self._bounds.named
        return bool(named or count.bytes + checkpoint.stored_bytes > self._bounds.tenant_bytes)


async def insert_checkpoint(connection: AsyncConnection, values: dict[str, Any]) -> None:
    """Store a checkpoint in a transaction of the caller, which knows that it may."""
    await connection.execute(_INSERT, values)


def checkpoint_columns(seal: Seal, tenant: str, checkpoint: Checkpoint, content: bytes) -> dict[str, Any]:
    """Return the row of a checkpoint, encrypted."""
    return {
        "invocation_id": checkpoint.invocation_id,
        "number": checkpoint.number,
        "attempt": checkpoint.attempt,
        "tenant": tenant,
        "kind": str(checkpoint.kind),
        "label": checkpoint.label,
        "tool_digest": checkpoint.tool_digest,
        "state_bytes": checkpoint.state_bytes,
        "stored_bytes": checkpoint.stored_bytes,
        "parent_number": checkpoint.parent_number,
        "digest": checkpoint.digest,
        "create_time": checkpoint.create_time,
        "content": seal.seal(content, seal_context(checkpoint.invocation_id, checkpoint.number)),
    }


def seal_context(invocation_id: str, number: int) -> str:
    """Return the context that a checkpoint is bound to."""
    return f"checkpoints/{invocation_id}/{number}"


def _checkpoint(row: Row[Any]) -> Checkpoint:
    return Checkpoint(
        invocation_id=row.invocation_id,
        number=row.number,
        attempt=row.attempt,
        kind=CheckpointKind(row.kind),
        tool_digest=row.tool_digest,
        state_bytes=row.state_bytes,
        stored_bytes=row.stored_bytes,
        digest=row.digest,
        create_time=row.create_time,
        parent_number=row.parent_number,
        label=row.label,
        expire_time=row.expire_time,
    )
