"""Asks policy about the tools that a query found, before they are shown to a caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from libs.common.tool_names import ToolName
from services.registry.domain.discovery.ports import Searcher
from services.registry.domain.discovery.query import ASKED_TOOLS, Permissions, Query
from services.registry.domain.discovery.results import Hits
from services.registry.domain.model import Usability, VersionHead
from services.registry.domain.ports import CallPolicy

# While policy forbids what was found, this many times as many tools are looked at.
_WIDEN = 4


async def ask_policy(heads: Sequence[VersionHead], policy: CallPolicy) -> Permissions:
    """Return what policy answers about some versions."""
    answers = await policy.usability_of(heads) if heads else ()
    return Permissions({head.tool: answer for head, answer in zip(heads, answers, strict=True)})


async def search_permitted(query: Query, searcher: Searcher, policy: CallPolicy, now: datetime) -> Hits:
    """Search the tools that policy lets the caller call. Every hit was asked about."""
    permissions = await _ask_while_forbidden(query, searcher, policy, now)
    hits = searcher.search(replace(query, filters=replace(query.filters, permissions=permissions)), now)
    nearest = await ask_policy([listing.default_version for listing in hits.nearest], policy)
    return replace(
        hits,
        # The index may have changed while policy was asked.
        hits=[hit for hit in hits.hits if hit.usability is not None],
        nearest=[listing for listing in hits.nearest if not nearest.forbids(listing.name)],
    )


async def search_all(query: Query, searcher: Searcher, policy: CallPolicy, now: datetime) -> Hits:
    """Search all tools, each hit with the answer of policy."""
    hits = searcher.search(query, now)
    permissions = await ask_policy([hit.head for hit in hits.hits], policy)
    return replace(
        hits, hits=[replace(hit, usability=permissions.usability.get(hit.listing.name)) for hit in hits.hits]
    )


async def _ask_while_forbidden(query: Query, searcher: Searcher, policy: CallPolicy, now: datetime) -> Permissions:
    """Ask policy about the best tools, and about more of them while too few are usable."""
    known: dict[ToolName, Usability] = {}
    looked_at = query.limit
    while True:
        found = searcher.search(replace(query, limit=looked_at), now).hits
        known |= (await ask_policy([hit.head for hit in found if hit.listing.name not in known], policy)).usability
        usable = sum(known[hit.listing.name] is not Usability.FORBIDDEN for hit in found)
        if usable >= query.limit or len(found) < looked_at or looked_at >= ASKED_TOOLS:
            return Permissions(known)
        looked_at = min(looked_at * _WIDEN, ASKED_TOOLS)
