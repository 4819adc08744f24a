"""SQL of idempotency claims. Every method is one statement, committed by itself.

Times are the database's, so that replicas with different clocks agree on when a lease expires.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from services.executor.domain.model import Claim, EncodedRecord

RUNNING, SUCCEEDED, FAILED, UNKNOWN = "running", "succeeded", "failed", "unknown"
_SWEEP_ROWS = 1000

Scope = tuple[str, str, str, str, str]

_AT = "tenant = :tenant and tool = :tool and subject = :subject and session = :session and key = :key"
_HELD = f"{_AT} and invocation_id = :invocation_id and state = 'running'"
_INPUT = (
    "unnest(cast(:tenants as text[]), cast(:tools as text[]), cast(:subjects as text[]), cast(:sessions as text[]),"
    " cast(:keys as text[]), cast(:invocations as text[]))"
    " as input (tenant, tool, subject, session, key, invocation_id)"
)
_SAME = (
    "c.tenant = input.tenant and c.tool = input.tool and c.subject = input.subject and c.session = input.session"
    " and c.key = input.key"
)

_COLUMNS = (
    "arguments_digest, invocation_id, state, doubted, result, error, losses, prepared, prepared_by, prepared_volume,"
    " record_id, record"
)

# Inserts the claim, or takes over an expired row or one whose lease expired, or reads the existing row. A takeover
# keeps the ids of all runs that may have had their effect: a run that changes volumes only has none before its result
# is prepared.
_ACQUIRE = text(f"""
with acquired as (
  insert into claims as c (tenant, tool, subject, session, key, arguments_digest, invocation_id, owner, state, doubted,
                           lease_until, create_time, expire_time, key_id, volumes_only)
  values (:tenant, :tool, :subject, :session, :key, :arguments_digest, :invocation_id, :owner, 'running', '',
          now() + :lease, now(), now() + :window, :key_id, :volumes_only)
  on conflict (tenant, tool, subject, session, key) do update set
    arguments_digest = excluded.arguments_digest, invocation_id = excluded.invocation_id, owner = excluded.owner,
    state = 'running', result = null, error = null, record_id = '', record = null,
    doubted = case when c.expire_time <= now() then ''
                   when c.volumes_only and c.prepared_by <> c.invocation_id then c.doubted
                   else concat_ws(' ', nullif(c.doubted, ''), c.invocation_id) end,
    losses = case when c.expire_time <= now() then 0 else c.losses + 1 end,
    prepared = case when c.expire_time <= now() then null else c.prepared end,
    prepared_by = case when c.expire_time <= now() then '' else c.prepared_by end,
    prepared_volume = case when c.expire_time <= now() then '' else c.prepared_volume end,
    key_id = excluded.key_id, volumes_only = excluded.volumes_only,
    lease_until = excluded.lease_until, create_time = excluded.create_time, expire_time = excluded.expire_time
  where c.expire_time <= now()
     or c.state = 'running' and c.lease_until <= now() and c.arguments_digest = excluded.arguments_digest
  returning c.*
)
select true as ours, {_COLUMNS} from acquired
union all
select false, {_COLUMNS} from claims
where {_AT} and not exists (select from acquired)
""")  # noqa: S608  (made of constants)
_SETTLE = text(f"""
update claims set state = :state, result = :result, error = :error, expire_time = now() + :window,
                  record_id = :record_id, record = :record, prepared = null, prepared_by = '', prepared_volume = ''
where {_HELD}
""")  # noqa: S608
# A call runs only when nothing is in doubt any more.
_PREPARE = text(f"""
update claims set prepared = :prepared, prepared_by = :invocation_id, prepared_volume = :volume, doubted = ''
where {_HELD}
""")  # noqa: S608
_CONFIRM_RECORD = text(f"""
update claims set record_id = '', record = null where {_AT} and record_id = :record_id
""")  # noqa: S608
# Releasing a claim that was taken over restores the former owner's state, because its outcome is still unknown.
_RELEASE = text(f"""
with gone as (delete from claims where {_HELD} and doubted = '')
update claims set lease_until = now(), invocation_id = substring(doubted from '[^ ]+$'), volumes_only = false,
                  doubted = rtrim(regexp_replace(doubted, '[^ ]+$', ''))
where {_HELD} and doubted <> ''
""")  # noqa: S608
_ABANDON = text(f"""
update claims set lease_until = now(), expire_time = now() + :window where {_HELD}
""")  # noqa: S608
# The expiry stays beyond the lease, so that an owner that outlives its window and then dies is still noticed.
_RENEW = text(f"""
update claims c set lease_until = now() + :lease, expire_time = greatest(c.expire_time, now() + :window) from {_INPUT}
where {_SAME} and c.invocation_id = input.invocation_id and c.state = 'running' returning c.invocation_id
""")  # noqa: S608
_READ = text(f"""
select input.tenant, input.tool, input.subject, input.session, input.key,
       c.state = 'running' and c.lease_until > now() as in_progress,
       {_COLUMNS.replace("invocation_id,", "c.invocation_id,", 1)}
from {_INPUT} join claims c on {_SAME}
""")  # noqa: S608
# The condition is repeated: a row that was renewed while this statement waited for its lock must not be deleted.
_SWEEP = text(
    "delete from claims where expire_time <= now()"
    " and ctid in (select ctid from claims where expire_time <= now() limit :max_rows)"
)


class Row(NamedTuple):
    """The row of a claim."""

    ours: bool
    """True if the reading call now holds the claim."""
    arguments_digest: str
    invocation_id: str
    state: str
    doubted: str
    """The ids of former owners with an unknown outcome, separated by spaces."""
    result: bytes | None
    error: bytes | None
    losses: int
    """How many owners disappeared."""
    prepared: bytes | None
    prepared_by: str
    prepared_volume: str
    record_id: str
    """The audit record of the outcome, until the log is known to have it."""
    record: bytes | None

    @property
    def in_progress(self) -> bool:
        """True if another call holds the claim, according to this row."""
        return self.state == RUNNING and not self.ours


def scope_of(claim: Claim) -> Scope:
    """Return the columns of the primary key."""
    return claim.tenant, claim.tool, claim.subject, claim.session, claim.key


class ClaimRows:
    """Reads and writes claim rows."""

    def __init__(self, engine: AsyncEngine, owner: str) -> None:
        self._engine, self._owner = engine, owner

    async def acquire(self, claim: Claim, lease: float) -> Row | None:
        """Acquire the claim if it is free and return its row; None if it changed concurrently, to try again."""
        values = {
            **_owner_columns(claim),
            "arguments_digest": claim.arguments_digest,
            "owner": self._owner,
            "lease": timedelta(seconds=lease),
            "window": timedelta(seconds=lease + claim.window),
            "key_id": claim.name.removeprefix("keys/"),
            "volumes_only": claim.volumes_only,
        }
        async with separately(self._engine) as connection:
            row = (await connection.execute(_ACQUIRE, values)).first()
            return None if row is None else Row(*row)

    async def settle(
        self,
        claim: Claim,
        state: str,
        record: EncodedRecord | None,
        *,
        result: bytes | None = None,
        error: bytes | None = None,
    ) -> bool:
        """Store the outcome if the call still holds its claim; return whether it did."""
        record_id, encoded = record or ("", None)
        values = {
            **_owner_columns(claim),
            "state": state,
            "result": result,
            "error": error,
            "window": timedelta(seconds=claim.window),
            "record_id": record_id,
            "record": encoded,
        }
        return await self._update(_SETTLE, values)

    async def prepare(self, claim: Claim, prepared: bytes, volume: str) -> bool:
        """Store the result of a call that is about to commit, if it still holds its claim; return whether it did."""
        return await self._update(_PREPARE, {**_owner_columns(claim), "prepared": prepared, "volume": volume})

    async def confirm_record(self, claim: Claim, record_id: str) -> None:
        """Remove the audit record of an outcome, because the log has it."""
        await self._update(_CONFIRM_RECORD, {**_owner_columns(claim), "record_id": record_id})

    async def release(self, claim: Claim) -> None:
        """Release a claim, if the call still holds it."""
        await self._update(_RELEASE, _owner_columns(claim))

    async def abandon(self, claim: Claim) -> None:
        """Expire the lease of a claim, if the call still holds it, so that its outcome counts as unknown at once."""
        await self._update(_ABANDON, {**_owner_columns(claim), "window": timedelta(seconds=claim.window)})

    async def renew(self, claims: Sequence[Claim], lease: float) -> set[str]:
        """Renew leases; return the invocations that still hold their claims."""
        columns = _columns((*scope_of(claim), claim.invocation_id) for claim in claims)
        # The longest window applies to all: it matters only if their owner dies.
        window = timedelta(seconds=lease + max(claim.window for claim in claims))
        async with separately(self._engine) as connection:
            values = {**columns, "lease": timedelta(seconds=lease), "window": window}
            return {row.invocation_id for row in await connection.execute(_RENEW, values)}

    async def read(self, scopes: Iterable[Scope]) -> dict[Scope, tuple[bool, Row]]:
        """Return whether each claim is in progress, and its row. Claims without a row are left out."""
        async with separately(self._engine) as connection:
            rows = await connection.execute(_READ, _columns((*scope, "") for scope in scopes))
            return {tuple(row[:5]): (row.in_progress, Row(False, *row[6:])) for row in rows}  # type: ignore[misc]

    async def sweep(self) -> int:
        """Delete a bounded number of expired claims; return how many."""
        async with separately(self._engine) as connection:
            return (await connection.execute(_SWEEP, {"max_rows": _SWEEP_ROWS})).rowcount

    async def _update(self, statement: TextClause, values: dict[str, Any]) -> bool:
        async with separately(self._engine) as connection:
            return (await connection.execute(statement, values)).rowcount == 1


def _owner_columns(claim: Claim) -> dict[str, Any]:
    return {
        "tenant": claim.tenant,
        "tool": claim.tool,
        "subject": claim.subject,
        "session": claim.session,
        "key": claim.key,
        "invocation_id": claim.invocation_id,
    }


def _columns(rows: Iterable[tuple[str, str, str, str, str, str]]) -> dict[str, list[str]]:
    names = ("tenants", "tools", "subjects", "sessions", "keys", "invocations")
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
