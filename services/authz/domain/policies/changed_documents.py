"""Applies a change to the documents of a policy set."""

from __future__ import annotations

from services.authz.domain.policies.errors import set_not_found
from services.authz.domain.policies.model import Documents, PolicySetChange
from services.authz.domain.policies.ports import PolicySets


async def changed_documents(change: PolicySetChange, sets: PolicySets) -> Documents:
    """Return the documents of the base set after the change. Raises NOT_FOUND for a missing base or removed
    document."""
    base = await sets.active() if change.base is None else await sets.find(change.base)
    if base is None and change.base is not None:
        raise set_not_found(f"policySets/{change.base}")
    documents = dict(base.documents) if base is not None else {}
    for name in change.removed:
        if documents.pop(name, None) is None:
            raise set_not_found(name)
    return documents | dict(change.documents)
