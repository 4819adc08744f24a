"""ListKeys and GetKey: show idempotency keys to operators."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common import page_tokens
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.idempotency.stored_key import KeyFilter, StoredKey
from services.executor.domain.ports import KeyStore

DEFAULT_PAGE = 100


@dataclass(frozen=True)
class ListKeys:
    """Lists keys, the newest first."""

    keys: KeyStore

    async def execute(self, wanted: KeyFilter, page_size: int, page_token: str) -> tuple[list[StoredKey], str]:
        """Return a page and the token of the next, empty after the last. Raises PAGE_TOKEN_INVALID."""
        limit = page_size or DEFAULT_PAGE
        query = ["keys", [*wanted.states], wanted.tool, wanted.subject, wanted.key, wanted.tenant]
        after = page_tokens.decode_time_cursor(query, page_token)
        page = await self.keys.page(wanted, after, limit + 1)
        if len(page) <= limit:
            return page, ""
        last = page[limit - 1]
        return page[:limit], page_tokens.encode(query, [last.created.isoformat(), last.name])


async def get_key(keys: KeyStore, name: str, tenant: str | None) -> StoredKey:
    """Return a key. Raises NOT_FOUND if there is none that the caller may see."""
    key = await keys.get(name, tenant)
    if key is None:
        raise key_errors.key_not_found()
    return key
