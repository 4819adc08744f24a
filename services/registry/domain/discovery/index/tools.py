"""The search index: all tools in columns, and the search over them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import numpy as np

from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.semver import Constraint
from libs.common.tool_names import ToolName, grant_covers
from services.registry.domain.caller import Caller, Grant
from services.registry.domain.catalog.resolve import CHOSEN_FIRST, effective_state, matches
from services.registry.domain.discovery.index.columns import WIDTH, Columns, InternTable, Mask
from services.registry.domain.discovery.index.lexical import Postings, bm25, trigrams
from services.registry.domain.discovery.index.ranking import (
    NEUTRAL,
    Signals,
    composite,
    cost_component,
    latency_component,
    matching_rows,
    nearness,
    relevance,
    top_rows,
)
from services.registry.domain.discovery.listing import IndexEntry
from services.registry.domain.discovery.query import CALLABLE, Filters, Permissions, Query
from services.registry.domain.discovery.results import Hit, Hits, HitScore, Listing
from services.registry.domain.discovery.text import query_terms, terms
from services.registry.domain.model import LifecycleState, VersionHead
from services.registry.domain.publishing.manifest import MutationClass

_MUTATIONS = tuple(MutationClass)
_NEAREST = 5
# The index is rebuilt when more than this many rows are dead and they outnumber those alive.
_FORGET = 256
_MAX_PATTERNS = 256


class ToolIndex:
    """Holds tools by name. Not thread-safe: owned by one event loop."""

    def __init__(self) -> None:
        self.entries: dict[ToolName, IndexEntry] = {}
        self.row_of: dict[ToolName, int] = {}
        self._reset()

    def _reset(self) -> None:
        self.columns = Columns()
        self.tool_names: list[ToolName] = []
        self.words, self.tags, self.capabilities, self.pieces = Postings(), Postings(), Postings(), Postings()
        self.namespaces, self.scope_sets, self.version_sets = InternTable(), InternTable(), InternTable()
        self.categories, self.needs = InternTable(), InternTable()
        self.granted: BoundedCache[str, Mask] = BoundedCache(_MAX_PATTERNS)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: ToolName) -> bool:
        return name in self.entries

    def listing(self, name: ToolName) -> Listing | None:
        """Return the listing of a tool."""
        entry = self.entries.get(name)
        return entry.listing if entry else None

    def listing_at(self, row: int) -> Listing:
        """Return the listing of the tool in a row."""
        return self.entries[self.tool_names[row]].listing

    def names(self) -> Iterable[ToolName]:
        """Return the names of all tools."""
        return self.entries.keys()

    @property
    def column_bytes(self) -> int:
        """The memory that the columns hold."""
        return self.columns.held_bytes

    def put(self, entry: IndexEntry) -> None:
        """Add or replace a tool. Its vector stays if its default version is the same."""
        name = entry.listing.name
        old = self.entries.get(name)
        vector, trust = None, NEUTRAL
        if old is not None:
            row = self.row_of[name]
            trust = float(self.columns.trust[row])
            if (
                old.listing.default_version.digest == entry.listing.default_version.digest
                and self.columns.embedded[row]
            ):
                vector = self.columns.vectors[row].copy()
            self.drop(name)
        self.entries[name] = entry
        row = self.row_of[name] = self._add(entry)
        self.columns.trust[row] = trust
        if vector is not None:
            self.columns.vectors[row], self.columns.embedded[row] = vector, True

    def drop(self, name: ToolName) -> None:
        """Remove a tool."""
        if self.entries.pop(name, None) is None:
            return
        self.columns.alive[self.row_of.pop(name)] = False
        gone = self.columns.size - len(self.entries)
        if gone > _FORGET and gone > len(self.entries):
            self._rebuild()

    def tools_without_vector(self) -> list[tuple[ToolName, str]]:
        """Return the tools without a vector, each with the digest of its default version."""
        missing = np.flatnonzero(self.columns.alive & ~self.columns.embedded)
        return [
            (name, self.entries[name].listing.default_version.digest)
            for name in (self.tool_names[row] for row in missing)
        ]

    def embed(self, name: ToolName, digest: str, vector: bytes) -> None:
        """Set the vector of a tool, unless its default version has changed."""
        entry = self.entries.get(name)
        if entry is not None and entry.listing.default_version.digest == digest:
            row = self.row_of[name]
            self.columns.vectors[row] = _floats(vector)
            self.columns.embedded[row] = True

    def has_word(self, word: str) -> bool:
        """Return whether a tool has the word, or had it since the index was rebuilt."""
        return any(term in self.words for term in terms(word))

    def trust(self, scores: Mapping[ToolName, float]) -> None:
        """Update the trust scores."""
        rows = [self.row_of[name] for name in scores if name in self.row_of]
        self.columns.trust[rows] = [scores[name] for name in scores if name in self.row_of]

    def search(self, query: Query, now: datetime) -> Hits:
        """Return the matching tools, ranked."""
        return Search(self, query, now).hits()

    def _add(self, entry: IndexEntry) -> int:
        listing, columns = entry.listing, self.columns
        row = columns.add()
        self.tool_names.append(listing.name)
        columns.latency[row], columns.cost[row], columns.length[row] = entry.latency, np.nan, entry.length
        columns.mutation[row] = _MUTATIONS.index(listing.mutation_class)
        columns.namespace[row] = self.namespaces.number(listing.name.namespace)
        columns.scopes[row] = self.scope_sets.number(listing.required_scopes)
        columns.category[row] = self.categories.number(listing.category)
        columns.versions[row] = self.version_sets.number(_version_key(listing.heads), listing.heads)
        needs = (listing.feature_gates, listing.credentials, listing.model_support, listing.need)
        columns.needs[row] = self.needs.number(needs, listing)
        self.words.add(row, entry.counted)
        self.tags.add(row, dict.fromkeys(entry.tags, 1.0))
        self.capabilities.add(row, dict.fromkeys(entry.capabilities, 1.0))
        self.pieces.add(row, dict.fromkeys(trigrams(listing.name.tool_id), 1.0))
        return row

    def _rebuild(self) -> None:
        old, rows = self.columns, dict(self.row_of)
        self._reset()
        for name, entry in self.entries.items():
            row = self.row_of[name] = self._add(entry)
            was = rows[name]
            for column in ("trust", "embedded", "vectors"):
                getattr(self.columns, column)[row] = getattr(old, column)[was]


class Search:
    """One search over the rows of the index."""

    def __init__(self, index: ToolIndex, query: Query, now: datetime) -> None:
        self._index, self._query, self._now = index, query, now
        self._size = index.columns.size
        self._alive = index.columns.alive[: self._size]
        self._narrowed: dict[int, VersionHead] = {}
        """The version that the caller's grants cover, by row, where it is not the one that other callers get."""

    def hits(self) -> Hits:
        query, columns = self._query, self._index.columns
        signals = self._signals()
        text, wanted = bool(query.text) and not query.only_names, bool(query.capabilities)
        if query.only_names:
            fits, candidate = signals.exact.astype(np.float32), signals.exact & self._alive
        else:
            fits = relevance(signals, text=text, capabilities=wanted)
            candidate = matching_rows(signals, text=text, capabilities=wanted) & self._alive
        chosen, verdicts = self._chosen_versions()
        passed, removed = self._filtered(candidate, chosen, verdicts)
        rows = np.flatnonzero(passed)
        parts = self._components(rows, fits)
        best = rows[top_rows(signals.exact[rows], fits[rows], parts["score"][rows], query.limit)]
        return Hits(
            hits=self._hits(best, signals, fits, parts, chosen),
            tools=len(self._index),
            candidates=int(np.count_nonzero(candidate)),
            passed=len(rows),
            removed={name: count for name, count in removed.items() if count},
            nearest=self._nearest(signals) if not len(rows) else (),
            without_vector=int(np.count_nonzero(self._alive & ~columns.embedded[: self._size])) if query.vector else 0,
        )

    def _signals(self) -> Signals:
        index, query, size = self._index, self._query, self._size
        exact = np.zeros(size, dtype=np.bool_)
        exact[[index.row_of[name] for name in query.names if name in index.row_of]] = True
        lengths = index.columns.length[:size]
        lexical, all_words = bm25(index.words, query_terms(query.text), lengths, self._alive)
        embedded = index.columns.embedded[:size] & (query.vector is not None)
        cosine = np.zeros(size, dtype=np.float32)
        if query.vector is not None:
            cosine = index.columns.vectors[:size] @ _floats(query.vector)
        capability = np.zeros(size, dtype=np.float32)
        for wanted in query.capabilities:
            capability += index.capabilities.having(wanted.lower(), size)
        capability /= np.float32(max(len(query.capabilities), 1))
        return Signals(exact, lexical, all_words, cosine, embedded, capability)

    def _chosen_versions(self) -> tuple[list[VersionHead | None], list[str]]:
        """Return the chosen version of each distinct set of versions, or the filter that excludes all of them. Also
        narrow versions to the caller's grants."""
        filters = self._query.filters
        chosen: list[VersionHead | None] = []
        verdicts: list[str] = []
        for heads in self._index.version_sets.values:
            head, verdict = choose_version(heads, filters, self._now)
            chosen.append(head)
            verdicts.append(verdict)
        if filters.caller is not None:
            self._narrowed = self._within_grants(filters.caller, chosen)
        return chosen, verdicts

    def _within_grants(self, caller: Caller, chosen: Sequence[VersionHead | None]) -> dict[int, VersionHead]:
        """Return the versions to show where no grant covers the chosen version but grants cover others: a token for
        `^1` of a tool still finds it after 2.0.0 was published."""
        confined = [(Constraint.parse(g.version_constraint).accepts, g) for g in caller.grants if g.version_constraint]
        if not confined:
            return {}
        uncovered = self._alive & ~self._granted(caller, chosen)
        named = [(accepts, self._matching(grant.pattern)) for accepts, grant in confined]
        narrowed: dict[int, VersionHead] = {}
        known: dict[tuple[int, ...], VersionHead | None] = {}
        for row in np.flatnonzero(uncovered & np.logical_or.reduce([mask for _, mask in named])).tolist():
            versions = int(self._index.columns.versions[row])
            key = (versions, *(at for at, (_, mask) in enumerate(named) if mask[row]))
            if key not in known:
                heads = self._index.version_sets.values[versions]
                own = [head for head in heads if any(named[at][0](head.version) for at in key[1:])]
                known[key] = choose_version(own, self._query.filters, self._now)[0]
            head = known[key]
            if head is not None and effective_state(head, self._now) in CALLABLE:
                narrowed[row] = head
        return narrowed

    def _filtered(
        self, candidate: Mask, chosen: Sequence[VersionHead | None], verdicts: Sequence[str]
    ) -> tuple[Mask, dict[str, int]]:
        left, removed = candidate, {}
        for name, keeps in self._conditions(chosen, verdicts):
            removed[name] = int(np.count_nonzero(left & ~keeps))
            left = left & keeps
        return left, removed

    def _conditions(self, chosen: Sequence[VersionHead | None], verdicts: Sequence[str]) -> Iterable[tuple[str, Mask]]:
        filters, columns, size = self._query.filters, self._index.columns, self._size
        sets = columns.versions[:size]
        for reason in ("version_constraint", "states"):
            yield reason, np.array([verdict != reason for verdict in verdicts] or [True])[sets]
        if filters.namespaces:
            yield "namespaces", self._in(self._index.namespaces, filters.namespaces)[columns.namespace[:size]]
        for tag in filters.tags:
            yield "tags", self._index.tags.having(tag.lower(), size)
        if filters.mutation_classes:
            wanted = [_MUTATIONS.index(mutation_class) for mutation_class in filters.mutation_classes]
            yield "mutation_classes", np.isin(columns.mutation[:size], wanted)
        if filters.caller is not None:
            yield "permission", self._permitted(filters.caller, chosen)
        if filters.permissions is not None:
            yield "policy", ~self._forbidden(filters.permissions)
        if filters.min_trust:
            yield "min_trust", columns.trust[:size] >= np.float32(filters.min_trust)
        if filters.max_latency is not None:
            yield "max_latency_p95", columns.latency[:size] <= np.float32(filters.max_latency)
        if filters.max_cost is not None:
            yield "max_cost", columns.cost[:size] <= np.float32(filters.max_cost)

    @staticmethod
    def _in(table: InternTable, wanted: Iterable[str]) -> Mask:
        held = frozenset(wanted)
        return table.mask_of(number for number, value in enumerate(table.values) if value in held)

    def _permitted(self, caller: Caller, chosen: Sequence[VersionHead | None]) -> Mask:
        """Return a mask of the rows that a token covers: a grant for the tool at that version, and every required
        scope."""
        return self._granted(caller, chosen) & self._held(caller)

    def _forbidden(self, permissions: Permissions) -> Mask:
        """Return a mask of the rows that policy forbids."""
        forbidden = np.zeros(self._size, dtype=np.bool_)
        row_of = self._index.row_of
        forbidden[[row_of[tool] for tool in permissions.usability if tool in row_of and permissions.forbids(tool)]] = (
            True
        )
        return forbidden

    def _granted(self, caller: Caller, chosen: Sequence[VersionHead | None]) -> Mask:
        granted = np.zeros(self._size, dtype=np.bool_)
        for grant in caller.grants:
            granted |= self._covered(grant, chosen)
        granted[list(self._narrowed)] = True
        return granted

    def _held(self, caller: Caller) -> Mask:
        scopes = self._index.scope_sets
        held = scopes.mask_of(number for number, required in enumerate(scopes.values) if required <= caller.scopes)
        return held[self._index.columns.scopes[: self._size]] if len(held) else np.zeros(0, dtype=np.bool_)

    def _covered(self, grant: Grant, chosen: Sequence[VersionHead | None]) -> Mask:
        mask = self._matching(grant.pattern)
        if not grant.version_constraint:
            return mask
        accepts = Constraint.parse(grant.version_constraint).accepts
        allowed = np.array([head is not None and accepts(head.version) for head in chosen], dtype=np.bool_)
        return mask & allowed[self._index.columns.versions[: self._size]]

    def _matching(self, pattern: str) -> Mask:
        """Return a mask of the rows that a pattern matches. Row names never change, so only new rows are evaluated."""
        index, known = self._index, self._index.granted.get(pattern)
        done = len(known) if known is not None else 0
        if known is None or done < self._size:
            fresh = np.array(
                [grant_covers(pattern, name) for name in index.tool_names[done : self._size]], dtype=np.bool_
            )
            known = fresh if known is None else np.concatenate([known, fresh])
            index.granted.put(pattern, known)
        return known

    def _components(self, rows: np.ndarray, fits: np.ndarray) -> dict[str, np.ndarray]:
        filters, columns, size = self._query.filters, self._index.columns, self._size
        latency = latency_component(columns.latency[:size], filters.max_latency)
        # Relative to the matching tools only.
        cost = np.full(size, NEUTRAL, dtype=np.float32)
        cost[rows] = cost_component(columns.cost[rows], filters.max_cost)
        score = composite(columns.trust[:size], fits, latency, cost)
        return {"latency": latency, "cost": cost, "score": score}

    def _hits(
        self,
        rows: np.ndarray,
        signals: Signals,
        fits: np.ndarray,
        parts: Mapping[str, np.ndarray],
        chosen: Sequence[VersionHead | None],
    ) -> list[Hit]:
        """Return the hits of some rows. Reading whole columns is ten times faster than reading single cells."""
        columns = self._index.columns
        taken = (
            parts["score"][rows],
            columns.trust[rows],
            fits[rows],
            parts["latency"][rows],
            parts["cost"][rows],
            signals.exact[rows].astype(np.float32),
            signals.lexical[rows],
            signals.capability[rows],
            np.where(signals.embedded[rows], nearness(signals.cosine[rows]), np.float32(0)),
            signals.all_words[rows],
            columns.latency[rows],
        )
        costs = [None if math.isnan(cost) else cost for cost in columns.cost[rows].tolist()]
        scores = map(HitScore, *(column.tolist() for column in taken), costs)
        return [self._hit(row, score, chosen) for row, score in zip(rows.tolist(), scores, strict=True)]

    def _hit(self, row: int, score: HitScore, chosen: Sequence[VersionHead | None]) -> Hit:
        listing, permissions = self._index.listing_at(row), self._query.filters.permissions
        own = self._own_version(row, chosen)
        usability = permissions.usability.get(listing.name) if permissions is not None else None
        return Hit(listing, own, effective_state(own, self._now), score, usability)

    def _own_version(self, row: int, chosen: Sequence[VersionHead | None]) -> VersionHead:
        """Return the version of a row that the query means."""
        versions, listing = self._index.columns.versions[row], self._index.listing_at(row)
        meant = self._narrowed.get(row, chosen[versions])
        if meant is None:
            return listing.default_version
        # The chosen version is shared by all tools with the same set of versions; the tool's own is at the same
        # position.
        heads = self._index.version_sets.values[versions]
        return listing.heads[next(position for position, head in enumerate(heads) if head is meant)]

    def _nearest(self, signals: Signals) -> list[Listing]:
        """Return the tools with the names most similar to the query, among tools that the caller may call."""
        seen = self._alive.copy()
        if self._query.filters.caller is not None:
            seen &= self._permitted(self._query.filters.caller, self._chosen_versions()[0])
        if self._query.filters.permissions is not None:
            seen &= ~self._forbidden(self._query.filters.permissions)
        shared = np.zeros(self._size, dtype=np.float32)
        pieces = list(
            trigrams("_".join(self._query.text.lower().split()) or " ".join(n.tool_id for n in self._query.names))
        )
        for piece in pieces:
            shared[self._index.pieces.of(piece)[0]] += 1
        likeness = shared / max(len(pieces), 1) + np.where(signals.embedded, signals.cosine, 0)
        likeness[~seen] = 0
        best = np.argsort(-likeness, kind="stable")[:_NEAREST]
        return [self._index.listing_at(row) for row in best.tolist() if likeness[row] > 0.1]


def choose_version(heads: Sequence[VersionHead], filters: Filters, now: datetime) -> tuple[VersionHead | None, str]:
    """Return the highest version that may be chosen for new work, else the highest that the filters allow. If there is
    none, return the filter that excludes all."""
    matching = matches(heads, filters.version_constraint)
    if not matching:
        return None, "version_constraint"
    allowed = [head for head in matching if effective_state(head, now) in filters.states]
    if not allowed:
        return None, "states"
    preferred = [head for head in allowed if effective_state(head, now) in CHOSEN_FIRST]
    fresh = [head for head in allowed if effective_state(head, now) is LifecycleState.DEPRECATED]
    return (preferred or fresh or allowed)[-1], ""


def _version_key(heads: Sequence[VersionHead]) -> tuple[tuple[str, str, datetime | None], ...]:
    def sunset(head: VersionHead) -> datetime | None:
        return head.standing.deprecation.sunset_time if head.standing.deprecation else None

    return tuple((str(head.version), head.standing.state.value, sunset(head)) for head in heads)


def _floats(vector: bytes) -> np.ndarray:
    return np.frombuffer(vector, dtype="<f2", count=WIDTH).astype(np.float32)
