"""ListRevocations: lists the unexpired revocations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common import page_tokens
from libs.common.runtime.clock import Clock
from services.authz.domain.model import Revocation
from services.authz.domain.ports import Revocations

DEFAULT_PAGE = 100
_QUERY = "revocations"


@dataclass(frozen=True)
class ListRevocations:
    """Lists revocations, newest first."""

    revocations: Revocations
    clock: Clock

    async def execute(self, page_size: int, page_token: str) -> tuple[Sequence[Revocation], str]:
        """Return a page and the next page token, empty after the last page. Raises PAGE_TOKEN_INVALID."""
        limit = page_size or DEFAULT_PAGE
        before = page_tokens.decode_cursor(_QUERY, page_token)
        page = await self.revocations.page(before=before, limit=limit + 1, now=self.clock.now())
        if len(page) <= limit:
            return page, ""
        return page[:limit], page_tokens.encode(_QUERY, [page[limit - 1].sequence])
