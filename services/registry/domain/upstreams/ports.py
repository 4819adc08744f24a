"""The ports of the upstream domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from services.registry.domain.upstreams.upstream import Upstream


class Upstreams(Protocol):
    """All upstreams, shared by the replicas."""

    async def get(self, upstream_id: str) -> Upstream | None:
        """Return an upstream; None if there is none with this id."""
        ...

    async def list(self, after: str, limit: int) -> Sequence[Upstream]:
        """Return upstreams after an id, sorted by id."""
        ...

    async def revisions(self) -> Mapping[str, int]:
        """Return the revision of every upstream, by id."""
        ...

    async def add(self, upstream: Upstream) -> bool:
        """Store a new upstream and record the act; False if the id is taken."""
        ...

    async def replace(self, upstream: Upstream, *, act: str = "", reason: str = "") -> bool:
        """Store an upstream under its next revision, if the stored one still has the revision of this one; False if
        not. An `act` is recorded with it."""
        ...

    async def remove(self, upstream: Upstream) -> bool:
        """Delete an upstream and record the act; False if it is gone."""
        ...
