"""The caller of a request: what its token grants."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.semver import Constraint
from libs.common.tool_names import grant_covers
from services.registry.domain.model import VersionHead


@dataclass(frozen=True, slots=True)
class Grant:
    """A tool pattern that a token grants; an empty constraint means every version."""

    pattern: str
    version_constraint: str = ""

    def covers(self, head: VersionHead) -> bool:
        """Return whether the grant covers a version."""
        if not grant_covers(self.pattern, head.tool):
            return False
        return not self.version_constraint or Constraint.parse(self.version_constraint).accepts(head.version)


@dataclass(frozen=True, slots=True)
class Caller:
    """The grants and scopes of the caller's token."""

    grants: tuple[Grant, ...]
    scopes: frozenset[str]

    def is_granted(self, head: VersionHead) -> bool:
        """Return whether a grant covers a version."""
        return any(grant.covers(head) for grant in self.grants)
