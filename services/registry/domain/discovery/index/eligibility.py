"""Determines for one task which tools are usable, blocked, excluded or filtered, and their categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from libs.common.tool_names import ToolName
from services.registry.domain.catalog.resolve import effective_state
from services.registry.domain.discovery.environment import (
    BLOCKING,
    BY_STATE,
    Category,
    Eligibility,
    SurfaceEnvironment,
    SurfaceReason,
    WithheldTool,
)
from services.registry.domain.discovery.index.columns import Mask
from services.registry.domain.discovery.index.ranking import matching_rows, relevance
from services.registry.domain.discovery.index.tools import Search, ToolIndex
from services.registry.domain.discovery.query import ASKED_TOOLS, CALLABLE, Query
from services.registry.domain.discovery.results import Listing
from services.registry.domain.model import LifecycleState, VersionHead

# With more tools than this, the index lists categories first.
LIST_TOOLS = 50
USEFUL = 160
WITHHELD = 100
_LEADERS = 3
EVERY_STATE = frozenset(LifecycleState)


def assess_eligibility(index: ToolIndex, query: Query, environment: SurfaceEnvironment, now: datetime) -> Eligibility:
    """Return the eligibility of every tool."""
    return _EligibilitySearch(index, query, environment, now).result()


class _EligibilitySearch(Search):
    def __init__(self, index: ToolIndex, query: Query, environment: SurfaceEnvironment, now: datetime) -> None:
        super().__init__(index, replace(query, filters=replace(query.filters, states=EVERY_STATE)), now)
        self._environment = environment

    def result(self) -> Eligibility:
        columns, query = self._index.columns, self._query
        signals = self._signals()
        text, wanted = bool(query.text), bool(query.capabilities)
        fits = np.where(
            matching_rows(signals, text=text, capabilities=wanted),
            relevance(signals, text=text, capabilities=wanted),
            0,
        ).astype(np.float32)
        chosen, verdicts = self._chosen_versions()
        there, reasons = self._reasons(chosen)
        passed, _ = self._filtered(there & (reasons < 0), chosen, verdicts)
        rows = np.flatnonzero(passed)
        parts = self._components(rows, fits)
        utility = fits * parts["score"]
        # Ties are sorted by rank, so that an empty task still gets the best tools.
        best = rows[np.lexsort((-parts["score"][rows], -utility[rows]))]
        named = self._examined(best)
        members, categories, listed = self._members(best, named, utility)
        withheld_rows = np.flatnonzero(there & (reasons >= 0))
        blocking = np.array([reason in BLOCKING for reason in _REASONS])
        blocked = int(blocking[reasons[withheld_rows]].sum())
        top_withheld = withheld_rows[np.argsort(-utility[withheld_rows], kind="stable")][:WITHHELD]
        return Eligibility(
            usable=len(rows),
            useful=self._hits(named[:USEFUL], signals, fits, parts, chosen),
            members=members,
            categories=categories,
            listed=listed,
            withheld=[
                self._withheld(int(row), _REASONS[reasons[row]], chosen[columns.versions[row]]) for row in top_withheld
            ],
            blocked=blocked,
            excluded=len(withheld_rows) - blocked,
            filtered=int(np.count_nonzero(there & (reasons < 0))) - len(rows),
            need_approval=self._need_approval(members),
            candidates=self._candidates(best, chosen),
        )

    def _need_approval(self, members: Sequence[Listing]) -> frozenset[ToolName]:
        permissions = self._query.filters.permissions
        if permissions is None:
            return frozenset()
        return frozenset(listing.name for listing in members if permissions.needs_approval(listing.name))

    def _candidates(self, best: np.ndarray, chosen: Sequence[VersionHead | None]) -> list[VersionHead]:
        """Return the versions that policy must be asked about before they are named."""
        if self._query.filters.permissions is not None:
            return []
        return [self._own_version(row, chosen) for row in best[:ASKED_TOOLS].tolist()]

    def _examined(self, best: np.ndarray) -> np.ndarray:
        """Return the rows that may be named: all, or those that policy was asked about."""
        permissions = self._query.filters.permissions
        if permissions is None:
            return best
        row_of = self._index.row_of
        return best[np.isin(best, [row_of[tool] for tool in permissions.usability if tool in row_of])]

    def _reasons(self, chosen: Sequence[VersionHead | None]) -> tuple[Mask, np.ndarray]:
        """Return which rows belong on a surface, and the reason against each; -1 without a reason."""
        index, columns, size = self._index, self._index.columns, self._size
        states = [effective_state(head, self._now) if head else None for head in chosen]
        belongs = np.array([state is None or state in CALLABLE or state in BY_STATE for state in states] or [True])
        by_state = np.array([_number(BY_STATE.get(state)) if state else -1 for state in states] or [-1])
        sets = columns.versions[:size]
        reasons, there = by_state[sets], belongs[sets]
        # The version that a grant narrows to can be called.
        reasons[list(self._narrowed)], there[list(self._narrowed)] = -1, True
        caller = self._query.filters.caller
        if caller is not None:
            granted, held = self._granted(caller, chosen), self._held(caller)
            _set(reasons, ~granted, SurfaceReason.POLICY_BLOCKED)
            _set(reasons, ~held, SurfaceReason.ROLE_NOT_ALLOWED)
        if self._query.filters.permissions is not None:
            _set(reasons, self._forbidden(self._query.filters.permissions), SurfaceReason.POLICY_BLOCKED)
        needs = [self._environment.missing_for(listing) for listing in index.needs.values]
        lacking = np.array([_number(missing[0]) if missing else -1 for missing in needs] or [-1])[columns.needs[:size]]
        reasons = np.where(reasons < 0, lacking, reasons)
        chain = np.zeros(size, dtype=np.bool_)
        chain[[index.row_of[name] for name in self._environment.call_chain if name in index.row_of]] = True
        _set(reasons, chain, SurfaceReason.RECURSIVE_TOOL_FORBIDDEN)
        return self._alive & there, reasons

    def _members(
        self, best: np.ndarray, named: np.ndarray, utility: np.ndarray
    ) -> tuple[list[Listing], list[Category], frozenset[str]]:
        """Return the tools to list. Above the limit: the most useful tools of the best categories."""
        if len(best) <= LIST_TOOLS:
            return [self._index.listing_at(int(row)) for row in named], [], frozenset()
        categories = self._categories(best, utility)
        rows: list[int] = []
        listed = []
        of_row = self._index.columns.category[named]
        for category in categories:
            if len(rows) >= LIST_TOOLS:
                break
            number = self._index.categories.number(category.name)
            rows.extend(int(row) for row in named[of_row == number][: LIST_TOOLS - len(rows)])
            listed.append(category.name)
        return [self._index.listing_at(row) for row in rows], categories, frozenset(listed)

    def _categories(self, best: np.ndarray, utility: np.ndarray) -> list[Category]:
        """Return the categories by the mean utility of their best tools, independent of their size."""
        numbers = self._index.columns.category[best]
        counts = np.bincount(numbers, minlength=len(self._index.categories.values))
        # Rows are sorted best first, so the first rows of each category are its leaders.
        order = np.argsort(numbers, kind="stable")
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        places = np.arange(len(best)) - starts[numbers[order]]
        leading = places < _LEADERS
        totals = np.bincount(numbers[order][leading], weights=utility[best[order][leading]], minlength=len(counts))
        mean_utility = totals / np.maximum(np.minimum(counts, _LEADERS), 1)
        categories = [
            Category(str(self._index.categories.values[at]), int(counts[at]), float(mean_utility[at]))
            for at in np.flatnonzero(counts)
        ]
        return sorted(categories, key=lambda category: (-category.utility, -category.tools, category.name))

    def _withheld(self, row: int, reason: SurfaceReason, head: VersionHead | None) -> WithheldTool:
        listing = self._index.listing_at(row)
        state = effective_state(head, self._now) if head else None
        if state in BY_STATE:
            return WithheldTool(listing, reason, f"state:{state.value}" if state else "")
        if reason is SurfaceReason.ROLE_NOT_ALLOWED and self._query.filters.caller:
            return WithheldTool(
                listing, reason, ",".join(sorted(listing.required_scopes - self._query.filters.caller.scopes))
            )
        if reason is SurfaceReason.POLICY_BLOCKED:
            permissions = self._query.filters.permissions
            forbidden = permissions is not None and permissions.forbids(listing.name)
            return WithheldTool(listing, reason, "policy" if forbidden else "token_grants")
        missing = self._environment.missing_for(listing)
        return WithheldTool(listing, reason, missing[1] if missing else "")


_REASONS = tuple(SurfaceReason)


def _number(reason: SurfaceReason | None) -> int:
    return _REASONS.index(reason) if reason is not None else -1


def _set(reasons: np.ndarray, where: Mask, reason: SurfaceReason) -> None:
    """Set a reason where none is set yet: the first reason is reported."""
    reasons[where & (reasons < 0)] = _number(reason)
