"""SearchTools: returns ranked tools, or the reason why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from libs.common.errors import MeshError
from libs.common.tool_names import ToolName
from services.registry.domain.discovery.permissions import search_all, search_permitted
from services.registry.domain.discovery.ports import Searcher
from services.registry.domain.discovery.query import Query
from services.registry.domain.discovery.query_embeddings import QueryEmbeddings
from services.registry.domain.discovery.query_language import is_english
from services.registry.domain.discovery.results import Hits
from services.registry.domain.ports import CallPolicy, Catalogue


class SemanticUse(StrEnum):
    """How far a search used embeddings."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    NOT_ASKED = "not_asked"
    UNAVAILABLE = "unavailable"
    OTHER_LANGUAGE = "other_language"


class NoMatch(StrEnum):
    """Why a search has no hits."""

    EMPTY_REGISTRY = "empty_registry"
    NO_CANDIDATE = "no_candidate"
    ALL_FILTERED = "all_filtered"
    NOT_PERMITTED = "not_permitted"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits, the use of embeddings, and the reason if there are no hits."""

    hits: Hits
    semantic_use: SemanticUse
    no_match: NoMatch | None


async def search_tools(
    query: Query,
    references: Sequence[str],
    *,
    semantic: bool,
    searcher: Searcher,
    embeddings: QueryEmbeddings,
    catalogue: Catalogue,
    policy: CallPolicy | None,
    now: datetime,
) -> SearchResult:
    """Search tools. Tools that a reference or the text names, directly or by alias, rank first. Without a policy, the
    search is not for a caller, and nothing is forbidden."""
    query = replace(
        query, names=await _named(query.text, references, catalogue), only_names=bool(references) and not query.text
    )
    asks = semantic and bool(query.text)
    # A query that names a tool needs no embedding.
    vector = await embeddings.vector_of(query.text) if asks and not query.names else None
    query = replace(query, vector=vector)
    hits = await _hits(query, searcher, policy, now)
    return SearchResult(hits, _use(query.text if asks and not query.names else "", vector, hits), _why_none(hits))


async def _hits(query: Query, searcher: Searcher, policy: CallPolicy | None, now: datetime) -> Hits:
    if policy is None:
        return searcher.search(query, now)
    search = search_permitted if query.filters.caller is not None else search_all
    return await search(query, searcher, policy, now)


async def _named(text: str, references: Sequence[str], catalogue: Catalogue) -> tuple[ToolName, ...]:
    names = []
    for reference in (*references, *([text.strip()] if text else ())):
        try:
            tool = await catalogue.tool(ToolName.parse(reference))
        except MeshError:
            # A sentence is not a reference, and an invalid reference names no tool.
            continue
        if tool is not None:
            names.append(tool.name)
    return tuple(dict.fromkeys(names))


def _use(embedded: str, vector: bytes | None, hits: Hits) -> SemanticUse:
    if not embedded:
        return SemanticUse.NOT_ASKED
    if vector is None:
        return SemanticUse.UNAVAILABLE if is_english(embedded) else SemanticUse.OTHER_LANGUAGE
    return SemanticUse.PARTIAL if hits.without_vector else SemanticUse.COMPLETE


def _why_none(hits: Hits) -> NoMatch | None:
    if hits.hits:
        return None
    if not hits.tools:
        return NoMatch.EMPTY_REGISTRY
    if not hits.candidates:
        return NoMatch.NO_CANDIDATE
    forbidden = hits.removed.get("permission", 0) + hits.removed.get("policy", 0)
    return NoMatch.NOT_PERMITTED if forbidden == hits.candidates else NoMatch.ALL_FILTERED
