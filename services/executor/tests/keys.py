"""Claims on idempotency keys that tests start from, and their rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError
from libs.common.ids import new_id
from services.executor.adapters.audit.record_encoder import RecordEncoder
from services.executor.adapters.tables import claims as table
from services.executor.domain.model import Claim

KEY = bytes(range(32))


# Encodes records as an executor does.
encode_record = RecordEncoder("executor-0").encode


def a_claim(**changes: Any) -> Claim:
    """Alice's wish to be the one call behind her key."""
    fields: dict[str, Any] = {
        "tenant": "acme",
        "tool": "core.say",
        "subject": "did:web:toolmesh.local:users:alice",
        "session": "session-1",
        "key": "k",
        "arguments_digest": "sha256:a",
        "invocation_id": new_id(),
        "window": 3600.0,
        "repeatable": False,
        **changes,
    }
    return Claim(**fields)


async def rows(engine: AsyncEngine) -> list[Any]:
    """Every row there is."""
    async with engine.begin() as connection:
        return list(await connection.execute(select(table)))


async def age(engine: AsyncEngine, column: str) -> None:
    """Let a moment that is in the future be in the past."""
    async with engine.begin() as connection:
        await connection.execute(update(table).values({column: func.now() - timedelta(seconds=1)}))


@contextmanager
def statements(engine: AsyncEngine) -> Iterator[list[str]]:
    """Note every statement that is sent while the block runs."""
    seen: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement)

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine.sync_engine, "before_cursor_execute", note)


async def refusal(waiting: Any) -> MeshError:
    """Return what a call is refused with."""
    with pytest.raises(MeshError) as caught:
        await waiting
    return caught.value
