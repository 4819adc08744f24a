"""Runs statements with a bounded share of the pool: many readers wait for each other, not for a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, TextClause
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately


class Statements:
    """Statements of one kind, at most so many at once, in order.

    The pool refuses a statement that waits for a connection for some seconds, which those of hundreds of streams would.
    """

    def __init__(self, engine: AsyncEngine, most: int) -> None:
        self._engine, self._turns = engine, asyncio.Semaphore(most)

    async def all(self, statement: TextClause, values: dict[str, Any]) -> Sequence[Row[Any]]:
        """Return the rows of a statement."""
        async with self._turns, separately(self._engine) as connection:
            return (await connection.execute(statement, values)).all()

    async def first(self, statement: TextClause, values: dict[str, Any]) -> Row[Any] | None:
        """Return the first row of a statement; None if it has none."""
        async with self._turns, separately(self._engine) as connection:
            return (await connection.execute(statement, values)).first()

    async def change(self, statement: TextClause, values: dict[str, Any]) -> int:
        """Return how many rows a statement changed."""
        async with self._turns, separately(self._engine) as connection:
            return (await connection.execute(statement, values)).rowcount
