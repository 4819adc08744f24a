"""The rows of idempotency keys. Every method is one statement and one round trip, committed by itself; time is the database's own, so
that replicas whose clocks differ still agree on when a lease has run out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from services.executor.domain.model import Claim

RUNNING, SUCCEEDED, FAILED = "running", "succeeded", "failed"
_SWEEP_ROWS = 1000

Scope = tuple[str, str, str, str, str]

_AT = "tenant = :tenant and tool = :tool and subject = :subject and session = :session and key = :key"
_HELD = f"{_AT} and invocation_id = :invocation_id and state = 'running'"
_GIVEN = (
    "unnest(cast(:tenants as text[]), cast(:tools as text[]), cast(:subjects as text[]), cast(:sessions as text[]),"
    " cast(:keys as text[]), cast(:invocations as text[])) as given (tenant, tool, subject, session, key, invocation_id)"
)
_SAME = (
    "c.tenant = given.tenant and c.tool = given.tool and c.subject = given.subject and c.session = given.session"
    " and c.key = given.key"
)

# Insert, or take what nobody holds any more, or look: a row whose window is over is as good as none; one whose owner fell silent is
# taken over with the memory of every run that may have had its effect.
_SEIZE = text(f"""
with seized as (
  insert into claims as c (tenant, tool, subject, session, key, arguments_digest, invocation_id, owner, state, doubted,
                           lease_until, create_time, expire_time)
  values (:tenant, :tool, :subject, :session, :key, :arguments_digest, :invocation_id, :owner, 'running', '',
          now() + :lease, now(), now() + :window)
  on conflict (tenant, tool, subject, session, key) do update set
    arguments_digest = excluded.arguments_digest, invocation_id = excluded.invocation_id, owner = excluded.owner,
    state = 'running', result = null, error = null,
    doubted = case when c.expire_time <= now() then '' else concat_ws(' ', nullif(c.doubted, ''), c.invocation_id) end,
    lease_until = excluded.lease_until, create_time = excluded.create_time, expire_time = excluded.expire_time
  where c.expire_time <= now()
     or c.state = 'running' and c.lease_until <= now() and c.arguments_digest = excluded.arguments_digest
  returning c.arguments_digest, c.invocation_id, c.state, c.doubted
)
select true as ours, arguments_digest, invocation_id, state, doubted, null::bytea as result, null::bytea as error from seized
union all
select false, arguments_digest, invocation_id, state, doubted, result, error from claims
where {_AT} and not exists (select from seized)
""")  # noqa: S608  (made of constants)
_SETTLE = text(f"""
update claims set state = :state, result = :result, error = :error, expire_time = now() + :window where {_HELD}
""")  # noqa: S608
# A key that was taken over is not forgotten by giving it back: what the owner before did is still unknown, and it is as if nobody had come.
_RELEASE = text(f"""
with gone as (delete from claims where {_HELD} and doubted = '')
update claims set lease_until = now(), invocation_id = substring(doubted from '[^ ]+$'),
                  doubted = rtrim(regexp_replace(doubted, '[^ ]+$', ''))
where {_HELD} and doubted <> ''
""")  # noqa: S608
_ABANDON = text(f"""
update claims set lease_until = now(), expire_time = now() + :window where {_HELD}
""")  # noqa: S608
# The window goes on beyond the lease: an owner that runs for longer than its window and then dies is doubted like any other.
_RENEW = text(f"""
update claims c set lease_until = now() + :lease, expire_time = greatest(c.expire_time, now() + :window) from {_GIVEN}
where {_SAME} and c.invocation_id = given.invocation_id and c.state = 'running' returning c.invocation_id
""")  # noqa: S608
_LOOK = text(f"""
select given.tenant, given.tool, given.subject, given.session, given.key, c.state = 'running' and c.lease_until > now() as under_way,
       c.arguments_digest, c.invocation_id, c.state, c.doubted, c.result, c.error
from {_GIVEN} join claims c on {_SAME}
""")  # noqa: S608
# Said twice: a row that was taken anew while this waited for it is looked at once more, and the place where it lay proves nothing then.
_SWEEP = text(
    "delete from claims where expire_time <= now()"
    " and ctid in (select ctid from claims where expire_time <= now() limit :most)"
)


class Row(NamedTuple):
    """What is known of a key."""

    ours: bool
    """True if the call that looked holds it now."""
    arguments_digest: str
    invocation_id: str
    state: str
    doubted: str
    """The invocations that held it before and fell silent, separated by spaces."""
    result: bytes | None
    error: bytes | None

    @property
    def under_way(self) -> bool:
        """True if somebody else works on it, as far as this row tells."""
        return self.state == RUNNING and not self.ours


def scope_of(claim: Claim) -> Scope:
    """Return what a key is unique in."""
    return claim.tenant, claim.tool, claim.subject, claim.session, claim.key


class ClaimRows:
    """Reads and writes the rows."""

    def __init__(self, engine: AsyncEngine, owner: str) -> None:
        self._engine, self._owner = engine, owner

    async def seize(self, claim: Claim, lease: float) -> Row | None:
        """Hold the key if nobody does, and return its row. None if it changed hands that very moment: look again."""
        values = {
            **_held(claim),
            "arguments_digest": claim.arguments_digest,
            "owner": self._owner,
            "lease": timedelta(seconds=lease),
            "window": timedelta(seconds=lease + claim.window),
        }
        async with separately(self._engine) as connection:
            found = (await connection.execute(_SEIZE, values)).first()
            return None if found is None else Row(*found)

    async def settle(
        self, claim: Claim, state: str, *, result: bytes | None = None, error: bytes | None = None
    ) -> bool:
        """Keep how a call ended, if it still holds its key; say whether it did."""
        window = timedelta(seconds=claim.window)
        return await self._change(
            _SETTLE, {**_held(claim), "state": state, "result": result, "error": error, "window": window}
        )

    async def release(self, claim: Claim) -> None:
        """Give a key back, if the call still holds it."""
        await self._change(_RELEASE, _held(claim))

    async def abandon(self, claim: Claim) -> None:
        """Let go of a key, if the call still holds it, so that its outcome is doubted at once."""
        await self._change(_ABANDON, {**_held(claim), "window": timedelta(seconds=claim.window)})

    async def renew(self, claims: Sequence[Claim], lease: float) -> set[str]:
        """Hold keys for longer; return the invocations that still do."""
        given = _given((*scope_of(claim), claim.invocation_id) for claim in claims)
        # The longest of them serves for all: it only counts if their owner dies.
        window = timedelta(seconds=lease + max(claim.window for claim in claims))
        async with separately(self._engine) as connection:
            found = await connection.execute(_RENEW, {**given, "lease": timedelta(seconds=lease), "window": window})
            return {row.invocation_id for row in found}

    async def look(self, scopes: Iterable[Scope]) -> dict[Scope, tuple[bool, Row]]:
        """Return whether each key is under way, and its row; a key that nobody holds is missing."""
        async with separately(self._engine) as connection:
            found = await connection.execute(_LOOK, _given((*scope, "") for scope in scopes))
            return {tuple(row[:5]): (row.under_way, Row(False, *row[6:])) for row in found}  # type: ignore[misc]

    async def sweep(self) -> int:
        """Forget keys whose window is over, a bounded number at a time; return how many."""
        async with separately(self._engine) as connection:
            return (await connection.execute(_SWEEP, {"most": _SWEEP_ROWS})).rowcount

    async def _change(self, statement: TextClause, values: dict[str, Any]) -> bool:
        async with separately(self._engine) as connection:
            return (await connection.execute(statement, values)).rowcount == 1


def _held(claim: Claim) -> dict[str, Any]:
    return {
        "tenant": claim.tenant,
        "tool": claim.tool,
        "subject": claim.subject,
        "session": claim.session,
        "key": claim.key,
        "invocation_id": claim.invocation_id,
    }


def _given(places: Iterable[tuple[str, str, str, str, str, str]]) -> dict[str, list[str]]:
    names = ("tenants", "tools", "subjects", "sessions", "keys", "invocations")
    return {name: list(column) for name, column in zip(names, zip(*places, strict=True), strict=True)}
