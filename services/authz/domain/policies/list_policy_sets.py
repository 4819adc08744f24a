"""ListPolicySets: lists policy sets, newest first."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common import page_tokens
from services.authz.domain.policies.model import StoredPolicySet
from services.authz.domain.policies.ports import PolicySets

_QUERY = "policySets"
_DEFAULT_PAGE = 100


@dataclass(frozen=True)
class ListPolicySets:
    """Lists policy sets without their documents."""

    sets: PolicySets

    async def execute(self, page_size: int, page_token: str) -> tuple[list[StoredPolicySet], str]:
        """Return a page and the next page token. Raises PAGE_TOKEN_INVALID."""
        size = page_size or _DEFAULT_PAGE
        page = await self.sets.page(page_tokens.decode_cursor(_QUERY, page_token), size + 1)
        more = len(page) > size
        return page[:size], page_tokens.encode(_QUERY, [page[size - 1].number]) if more else ""
