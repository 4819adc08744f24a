"""Lists shards, legal holds and checkpoints page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from libs.common import page_tokens
from services.audit.domain.errors import page_token_invalid
from services.audit.domain.evidence.model import LAST_SHARD, LegalHold, Shard
from services.audit.domain.evidence.ports import CheckpointStore, ShardStore
from services.audit.domain.model import LAST_SEQUENCE, SignedCheckpoint

DEFAULT_PAGE_SIZE = 100
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """A page and the token of the next one; the token is empty on the last page."""

    items: Sequence[T]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Page size and token of a listing."""

    size: int = 0
    token: str = ""

    @property
    def limit(self) -> int:
        """Number of items on a page."""
        return self.size or DEFAULT_PAGE_SIZE

    def decode_cursor(self, query: Any, kind: type, first: Any) -> Any:
        """Return the cursor of the token, or `first` without one. Raises PAGE_TOKEN_INVALID for a token of another
        query."""
        values = page_tokens.decode(query, self.token)
        if values is None:
            return first
        cursor = values[0] if len(values) == 1 else None
        # Tokens are opaque but not signed: a forged one must be refused here, not by the database.
        if type(cursor) is not kind or (isinstance(cursor, int) and not 0 <= cursor <= LAST_SEQUENCE):
            raise page_token_invalid()
        if isinstance(cursor, str) and "\0" in cursor:
            raise page_token_invalid()
        return cursor

    def build_page(self, query: Any, items: Sequence[T], cursor: Any) -> ListPage[T]:
        """Return a page of items that were read with a limit of one more than the page holds."""
        more = len(items) > self.limit
        return ListPage(items[: self.limit], page_tokens.encode(query, [cursor]) if more else "")


async def list_shards(shards: ShardStore, paging: PageRequest) -> ListPage[Shard]:
    """Return shards by number."""
    query = {"list": "shards"}
    first = min(paging.decode_cursor(query, int, 0), LAST_SHARD)
    page = await shards.list_from(first, paging.limit + 1)
    return paging.build_page(query, page, first + paging.limit)


async def list_holds(shards: ShardStore, paging: PageRequest) -> ListPage[LegalHold]:
    """Return holds by id."""
    query = {"list": "holds"}
    holds = await shards.list_holds(paging.decode_cursor(query, str, ""), paging.limit + 1)
    return paging.build_page(query, holds, holds[paging.limit - 1].hold_id if len(holds) > paging.limit else "")


async def list_checkpoints(
    store: CheckpointStore, shard: int, paging: PageRequest, *, ascending: bool
) -> ListPage[SignedCheckpoint]:
    """Return the checkpoints of a shard by size. New ones are larger than all others, so they do not shift the pages of
    a descending listing and come last in an ascending one."""
    query = {"list": "checkpoints", "shard": shard, "ascending": ascending}
    bound = paging.decode_cursor(query, int, 0 if ascending else LAST_SEQUENCE)
    sizes = range(bound, LAST_SEQUENCE) if ascending else range(bound)
    checkpoints = await store.page(shard, sizes, paging.limit + 1, ascending=ascending)
    last = checkpoints[paging.limit - 1].size if len(checkpoints) > paging.limit else 0
    return paging.build_page(query, checkpoints, last + 1 if ascending else last)
