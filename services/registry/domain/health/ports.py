"""The port of the health of versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from services.registry.domain.health.health import VersionHealth
from services.registry.domain.model import ToolVersion


class VersionHealths(Protocol):
    """The health of all versions, in memory."""

    def health_of(self, version: ToolVersion) -> VersionHealth:
        """Return the health of a version. Does not block."""
        ...

    def health_named(self, name: str) -> VersionHealth:
        """Return the health of a version by its name; that of a healthy one if it is not known yet. Does not block."""
        ...

    def changed_since(self, revision: int) -> tuple[int, Sequence[VersionHealth]]:
        """Return the current revision, and the health of the versions where it changed since another one. Does not
        block."""
        ...
