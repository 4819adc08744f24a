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

    async def execute(self, page_size: int, page_token: str, *, tenant: str = "") -> tuple[Sequence[Revocation], str]:
        """Return a page and the next page token, empty after the last page: for a reader of a tenant, of the
        revocations that concern it. Raises PAGE_TOKEN_INVALID."""
        limit, query = page_size or DEFAULT_PAGE, [_QUERY, tenant]
        before = page_tokens.decode_cursor(query, page_token)
        page = await self.revocations.page(before=before, limit=limit + 1, now=self.clock.now(), tenant=tenant)
        if len(page) <= limit:
            return page, ""
        return page[:limit], page_tokens.encode(query, [page[limit - 1].sequence])
