"""What a set would consist of after a change."""

from __future__ import annotations

from services.authz.domain.policies.errors import set_not_found
from services.authz.domain.policies.model import Change, Documents
from services.authz.domain.policies.ports import PolicySets


async def changed_documents(change: Change, sets: PolicySets) -> Documents:
    """Return the documents of the base with those of the change put on top. Raises NOT_FOUND for a base or a document to leave
    out that is not there."""
    base = await sets.active() if change.base is None else await sets.find(change.base)
    if base is None and change.base is not None:
        raise set_not_found(f"policySets/{change.base}")
    documents = dict(base.documents) if base is not None else {}
    for name in change.removed:
        if documents.pop(name, None) is None:
            raise set_not_found(name)
    return documents | dict(change.documents)
