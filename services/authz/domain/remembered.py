"""Verdicts that hold for more than one call, so that policy is not asked the same twice."""

from __future__ import annotations

from collections.abc import Hashable

from libs.common.auth.identity import Identity
from services.authz.domain.model import CallFacts, Verdict

REMEMBERED = 10_000


class Remembered:
    """A bounded memory of verdicts by the set that was asked, the token and the tool. The oldest is forgotten first."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._known: dict[Hashable, Verdict] = {}

    def find(self, version: str, caller: Identity, call: CallFacts) -> Verdict | None:
        """Return what this set answered about the same caller and tool."""
        return self._known.get(_key(version, caller, call))

    def keep(self, version: str, caller: Identity, call: CallFacts, verdict: Verdict) -> None:
        """Remember a verdict that holds whatever the call's own facts are."""
        if len(self._known) >= self._size:
            del self._known[next(iter(self._known))]
        self._known[_key(version, caller, call)] = verdict


def _key(version: str, caller: Identity, call: CallFacts) -> Hashable:
    """Everything that policy reads and that does not belong to one call alone. The token's id stands for its content."""
    return (
        version,
        caller.token_id,
        call.tool,
        call.version,
        call.mutation_class,
        call.required_permissions,
        call.tags,
        call.approval_always,
        call.impact_scope,
        call.closed_world,
        call.tool_trust,
        call.result_labels,
    )
