"""What sessions have seen, in PostgreSQL. Labels are only ever added, so what is known to be there is known for good; that one is
missing is asked anew each time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import orjson
from sqlalchemy import ARRAY, Text, bindparam, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from services.authz.adapters.postgres.tables import session_labels
from services.authz.domain.model import Question

REMEMBERED = 50_000


# As arrays, so that it is one statement for any number of rows: it is on the way of calls.
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
    """Labels by session and by the token that a chain began with: leaving the session does not leave them behind."""

    def __init__(self, engine: AsyncEngine, *, remember: int = REMEMBERED) -> None:
        self._engine, self._remember = engine, remember
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def of(self, question: Question) -> frozenset[str]:
        query = select(session_labels.c.label).where(session_labels.c.place.in_(places_of(question)))
        async with separately(self._engine) as connection:
            return frozenset((await connection.execute(query)).scalars())

    async def add(self, question: Question, labels: Iterable[str]) -> tuple[str, ...]:
        wanted = [(place, label) for place in places_of(question) for label in sorted(labels)]
        missing = [pair for pair in wanted if pair not in self._known]
        if not missing:
            return ()
        places, found = zip(*missing, strict=True)
        async with separately(self._engine) as connection:
            result = await connection.execute(_ADD, {"places": list(places), "labels": list(found)})
            added = set(result.scalars())
        for pair in missing:
            if len(self._known) >= self._remember:
                self._known.popitem(last=False)
            self._known[pair] = None
        return tuple(sorted(added))


def places_of(question: Question) -> list[str]:
    """Where the labels of a call are kept. A session belongs to its tenant: others may use the same name."""
    caller = question.caller
    sessions = {question.call.session_id, caller.session_id} - {""}
    found = [orjson.dumps(["session", caller.tenant, session]).decode() for session in sorted(sessions)]
    return [*found, orjson.dumps(["token", caller.root_token_id]).decode()] if caller.token_id else found
