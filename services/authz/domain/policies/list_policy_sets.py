"""ListPolicySets: returns sets, newest first."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common import page_tokens
from services.authz.domain.policies.model import StoredSet
from services.authz.domain.policies.ports import PolicySets

_QUERY = "policySets"
_USUAL = 100


@dataclass(frozen=True)
class ListPolicySets:
    """Lists sets without their documents."""

    sets: PolicySets

    async def __call__(self, page_size: int, page_token: str) -> tuple[list[StoredSet], str]:
        """Return a page and where to continue. Raises PAGE_TOKEN_INVALID."""
        size = page_size or _USUAL
        found = await self.sets.page(page_tokens.decode_cursor(_QUERY, page_token), size + 1)
        more = len(found) > size
        return found[:size], page_tokens.encode(_QUERY, [found[size - 1].number]) if more else ""
