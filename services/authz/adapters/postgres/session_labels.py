"""Session labels in PostgreSQL. Labels are never removed, so stored ones are cached; missing ones are always
queried."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import orjson
from sqlalchemy import ARRAY, Text, bindparam, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.sql.engine import separately
from services.authz.adapters.postgres.tables import session_labels
from services.authz.domain.model import DecisionRequest

CACHE_SIZE = 50_000

# Parameters are arrays, so that one prepared statement inserts any number of rows.
_ADD = (
    insert(session_labels)
    .from_select(
        ["place", "label"],
        select(
            func.unnest(bindparam("places", type_=ARRAY(Text))), func.unnest(bindparam("labels", type_=ARRAY(Text)))
        ),
    )
    .on_conflict_do_nothing()
    .returning(session_labels.c.label)
)


class PostgresSessionLabels:
    """Labels by session and by the root token of a chain, so that a caller cannot drop labels by changing its
    session."""

    def __init__(self, engine: AsyncEngine, *, cache_size: int = CACHE_SIZE) -> None:
        self._engine = engine
        self._stored = BoundedCache[tuple[str, str], None](cache_size)

    async def find(self, request: DecisionRequest) -> frozenset[str]:
        query = select(session_labels.c.label).where(session_labels.c.place.in_(label_scopes(request)))
        async with separately(self._engine) as connection:
            return frozenset((await connection.execute(query)).scalars())

    async def added(self, scopes: Collection[str]) -> Mapping[str, Sequence[tuple[str, datetime]]]:
        """Return the labels of each scope, with the time at which they were added."""
        columns = session_labels.c
        query = select(columns.place, columns.label, columns.added_at).where(columns.place.in_(scopes))
        found: dict[str, list[tuple[str, datetime]]] = {}
        async with separately(self._engine) as connection:
            for scope, label, time in await connection.execute(query):
                found.setdefault(scope, []).append((label, time))
        return found

    async def add(self, request: DecisionRequest, labels: Iterable[str]) -> tuple[str, ...]:
        pairs = [(scope, label) for scope in label_scopes(request) for label in sorted(labels)]
        missing = [pair for pair in pairs if pair not in self._stored]
        if not missing:
            return ()
        scopes, names = zip(*missing, strict=True)
        async with separately(self._engine) as connection:
            result = await connection.execute(_ADD, {"places": list(scopes), "labels": list(names)})
            added = set(result.scalars())
        for pair in missing:
            self._stored.put(pair, None)
        return tuple(sorted(added))


def label_scopes(request: DecisionRequest) -> list[str]:
    """Return the keys that the labels of a call are stored under. Session ids are scoped by tenant."""
    caller = request.caller
    sessions = {request.call.session_id, caller.session_id} - {""}
    scopes = [orjson.dumps(["session", caller.tenant, session]).decode() for session in sorted(sessions)]
    return [*scopes, orjson.dumps(["token", caller.root_token_id]).decode()] if caller.token_id else scopes
