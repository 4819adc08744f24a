"""Listing shards, holds and checkpoints page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from libs.common import page_tokens
from services.audit.domain.errors import page_token_invalid
from services.audit.domain.evidence.model import LAST_SHARD, LegalHold, Shard
from services.audit.domain.evidence.ports import CheckpointStore, Shards
from services.audit.domain.model import LAST_SEQUENCE, SignedCheckpoint

DEFAULT_PAGE_SIZE = 100
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """A page, and the token of the next; empty after the last."""

    items: Sequence[T]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class Paging:
    """How much of a listing is wanted, and from where."""

    size: int = 0
    token: str = ""

    @property
    def limit(self) -> int:
        """How many items a page holds."""
        return self.size or DEFAULT_PAGE_SIZE

    def cursor(self, query: Any, kind: type, first: Any) -> Any:
        """Return where this page begins. A token that this query did not make raises PAGE_TOKEN_INVALID."""
        found = page_tokens.decode(query, self.token)
        if found is None:
            return first
        cursor = found[0] if len(found) == 1 else None
        # The token is opaque but not secret: whoever makes one up gets a refusal, not an error of the database.
        if type(cursor) is not kind or (isinstance(cursor, int) and not 0 <= cursor <= LAST_SEQUENCE):
            raise page_token_invalid()
        if isinstance(cursor, str) and "\0" in cursor:
            raise page_token_invalid()
        return cursor

    def page(self, query: Any, found: Sequence[T], cursor: Any) -> Listed[T]:
        """Return a page of what was found, one more than it holds having been asked for."""
        more = len(found) > self.limit
        return Listed(found[: self.limit], page_tokens.encode(query, [cursor]) if more else "")


async def list_shards(shards: Shards, paging: Paging) -> Listed[Shard]:
    """Return shards in order of their numbers."""
    query = {"list": "shards"}
    first = min(paging.cursor(query, int, 0), LAST_SHARD)
    found = await shards.shards(first, paging.limit + 1)
    return paging.page(query, found, first + paging.limit)


async def list_holds(shards: Shards, paging: Paging) -> Listed[LegalHold]:
    """Return holds in order of their ids."""
    query = {"list": "holds"}
    found = await shards.holds(paging.cursor(query, str, ""), paging.limit + 1)
    return paging.page(query, found, found[paging.limit - 1].hold_id if len(found) > paging.limit else "")


async def list_checkpoints(
    store: CheckpointStore, shard: int, paging: Paging, *, ascending: bool
) -> Listed[SignedCheckpoint]:
    """Return checkpoints of a shard in order of their sizes. New ones are larger than all that are there: they do not shift
    the pages of a listing from the largest down, and come last in one from the smallest up."""
    query = {"list": "checkpoints", "shard": shard, "ascending": ascending}
    bound = paging.cursor(query, int, 0 if ascending else LAST_SEQUENCE)
    sizes = range(bound, LAST_SEQUENCE) if ascending else range(bound)
    found = await store.page(shard, sizes, paging.limit + 1, ascending=ascending)
    last = found[paging.limit - 1].size if len(found) > paging.limit else 0
    return paging.page(query, found, last + 1 if ascending else last)
