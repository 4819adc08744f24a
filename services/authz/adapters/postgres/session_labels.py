"""Session labels in PostgreSQL. A label that was removed stays as a row, with the decision that removed it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import orjson
from sqlalchemy import ARRAY, Text, bindparam, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from services.authz.adapters.postgres.tables import session_labels
from services.authz.domain.model import DecisionRequest, FoundLabels, LabelSource

_COLUMNS = session_labels.c
# Labels are an array, so that one prepared statement inserts any number of rows.
_ADD = (
    insert(session_labels)
    .from_select(
        ["place", "root_token", "label", "decision", "tool_version", "invocation_id"],
        select(
            bindparam("place", type_=Text),
            bindparam("root", type_=Text),
            func.unnest(bindparam("labels", type_=ARRAY(Text))),
            bindparam("decision", type_=Text),
            bindparam("tool_version", type_=Text),
            bindparam("invocation", type_=Text),
        ),
    )
    .on_conflict_do_nothing()
    .returning(_COLUMNS.label)
)


class PostgresSessionLabels:
    """Labels by session, and by the root token of the chain whose calls added them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def find(self, request: DecisionRequest) -> FoundLabels:
        place, root = label_place(request), request.caller.root_token_id
        wanted = or_(_COLUMNS.place == place, (_COLUMNS.root_token == root) & (_COLUMNS.root_token != ""))
        query = select(_COLUMNS.place, _COLUMNS.root_token, _COLUMNS.label).where(wanted, _COLUMNS.cleared_at.is_(None))
        async with separately(self._engine) as connection:
            rows = (await connection.execute(query)).all()
        return FoundLabels(
            session=frozenset(label for found, _, label in rows if found == place),
            token=frozenset(label for _, found, label in rows if root and found == root),
        )

    async def sources(self, scopes: Collection[str]) -> Mapping[str, Sequence[LabelSource]]:
        """Return how labels came into each scope: a place, or the root token of a chain."""
        roots = {root: scope for scope in scopes if (root := _root_of(scope))}
        wanted = or_(_COLUMNS.place.in_(scopes), _COLUMNS.root_token.in_(roots))
        found: dict[str, list[LabelSource]] = {}
        async with separately(self._engine) as connection:
            for row in await connection.execute(select(session_labels).where(wanted).order_by(_COLUMNS.added_at)):
                for scope in {row.place, roots.get(row.root_token, "")} & set(scopes):
                    found.setdefault(scope, []).append(
                        LabelSource(
                            row.label,
                            row.added_at,
                            row.cleared_at,
                            row.decision,
                            row.tool_version,
                            row.invocation_id,
                            row.place,
                        )
                    )
        return found

    async def add(self, request: DecisionRequest, labels: Iterable[str], decision: str) -> tuple[str, ...]:
        if not (place := label_place(request)):
            return ()
        call = request.call
        row = {"place": place, "root": request.caller.root_token_id, "labels": sorted(labels), "decision": decision}
        row |= {"tool_version": call.tool.version(str(call.version)), "invocation": call.invocation_id}
        async with separately(self._engine) as connection:
            return tuple(sorted((await connection.execute(_ADD, row)).scalars()))

    async def clear(self, request: DecisionRequest, labels: Iterable[str], decision: str) -> tuple[str, ...]:
        held = (_COLUMNS.place == label_place(request)) & _COLUMNS.label.in_(sorted(labels))
        change = (
            update(session_labels)
            .where(held, _COLUMNS.cleared_at.is_(None))
            .values(cleared_at=func.clock_timestamp(), cleared_by=decision)
            .returning(_COLUMNS.label)
        )
        async with separately(self._engine) as connection:
            return tuple(sorted(set((await connection.execute(change)).scalars())))


def label_place(request: DecisionRequest) -> str:
    """Return the key that the labels of a call are stored under: its session, which is one of its tenant, or the root
    token of its chain. Empty for a subject without a token and a session."""
    caller, session = request.caller, request.call.session_id or request.caller.session_id
    if session:
        return orjson.dumps(["session", caller.tenant, session]).decode()
    return _token_scope(request) if caller.token_id else ""


def label_scopes(request: DecisionRequest) -> list[str]:
    """Return the keys of the labels that a call meets: those of its place, and those of its token's chain."""
    chain = [_token_scope(request)] if request.caller.token_id else []
    return list(dict.fromkeys([*filter(None, [label_place(request)]), *chain]))


def _token_scope(request: DecisionRequest) -> str:
    return orjson.dumps(["token", request.caller.root_token_id]).decode()


def _root_of(scope: str) -> str:
    """Return the root token that a scope stands for; empty for a session."""
    kind, *parts = orjson.loads(scope)
    return str(parts[0]) if kind == "token" else ""
