"""Streams a stored result, piece by piece."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from typing import NamedTuple

from services.executor.domain import errors
from services.executor.domain.model import Caller
from services.executor.domain.results.store import PIECE_BYTES, ResultStore, StoredHead, token_hash


class Piece(NamedTuple):
    """A part of a stored result, and the metadata of the whole."""

    content: bytes
    offset: int
    head: StoredHead


class FetchResult:
    """Reads stored results for callers that may see them."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store

    async def stream(
        self, caller: Caller, ref: str, access_token: str, *, offset: int = 0, max_bytes: int = 0
    ) -> AsyncIterator[Piece]:
        """Yield the result from `offset` on, at most `max_bytes` unless that is 0. Yields at least one piece.

        Raises NOT_FOUND when the reference, the token or the caller is wrong, or the result expired, also during the
        read: the caller does not learn which. Raises INVALID_REQUEST for an offset beyond the end.
        """
        head = await self._store.find(ref.removeprefix("results/"))
        if head is None or not _may_read(caller, head, access_token):
            raise errors.stored_result_not_found()
        if offset > head.size:
            raise errors.offset_beyond(head.size)
        end = min(head.size, offset + max_bytes) if max_bytes else head.size
        if offset == end:
            yield Piece(b"", offset, head)
        while offset < end:
            # No resource is held between two pieces, however slow the reader is.
            content = await self._store.piece(head, offset // PIECE_BYTES)
            if content is None:
                raise errors.stored_result_not_found()
            begin = offset % PIECE_BYTES
            part = content[begin : begin + end - offset]
            yield Piece(part, offset, head)
            offset += len(part)


def _may_read(caller: Caller, head: StoredHead, access_token: str) -> bool:
    """Return whether the token matches and the caller belongs to the tenant; without a tenant, owns the result."""
    holds_token = hmac.compare_digest(token_hash(access_token), head.token_hash)
    belongs = caller.tenant == head.tenant if head.tenant else not caller.tenant and caller.subject == head.subject
    return holds_token and belongs
