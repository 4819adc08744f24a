"""ListCircuits: shows operators the circuits of a namespace, their last changes and the rates that services limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from libs.common import page_tokens
from libs.common.errors import MeshError, Reason
from services.executor.domain.resilience.circuit import CircuitState, Transition

DEFAULT_PAGE = 50


class PastTransition(NamedTuple):
    """A change of state, and when it was."""

    at: datetime
    change: Transition


class RateLimit(NamedTuple):
    """Whose calls a service does not take at present, and until when."""

    party: str
    until: datetime


@dataclass(frozen=True, slots=True)
class CircuitView:
    """One circuit as operators see it."""

    name: str
    state: CircuitState
    since: datetime | None
    """The time of its last change; None if none is remembered."""
    retry_at: datetime | None
    """When an open one lets a call pass."""
    calls: int
    """Those of the window; a circuit that is not closed counts none."""
    failed: int
    slow: int
    shared: bool
    """False if the executor that was asked decides alone."""
    changes: Sequence[PastTransition] = ()
    """The newest first."""
    limits: Sequence[RateLimit] = ()


class CircuitReader(Protocol):
    """The circuits of all services, for reading."""

    async def find(self, namespace: str, *, after: str, limit: int) -> list[CircuitView]:
        """Return circuits of a namespace in the order of their names, from behind a name on."""
        ...


@dataclass(frozen=True, slots=True)
class ListCircuits:
    """Lists the circuits of a namespace."""

    reader: CircuitReader

    async def execute(self, namespace: str, page_size: int, page_token: str) -> tuple[list[CircuitView], str]:
        """Return a page and the token of the next, empty after the last. Raises PAGE_TOKEN_INVALID."""
        query, limit = ["circuits", namespace], page_size or DEFAULT_PAGE
        page = await self.reader.find(namespace, after=_after(query, page_token), limit=limit + 1)
        token = page_tokens.encode(query, [page[limit - 1].name]) if len(page) > limit else ""
        return page[:limit], token


def _after(query: list[str], token: str) -> str:
    cursor = page_tokens.decode(query, token)
    if cursor is None:
        return ""
    if len(cursor) != 1 or not isinstance(cursor[0], str):
        raise MeshError(Reason.PAGE_TOKEN_INVALID)
    return cursor[0]
