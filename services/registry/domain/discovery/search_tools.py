"""SearchTools: from a question to ranked tools, or to the reason why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from libs.common.errors import MeshError
from libs.common.tool_names import ToolName
from services.registry.domain.discovery.ports import Searcher
from services.registry.domain.discovery.query import Query
from services.registry.domain.discovery.query_embeddings import QueryEmbeddings
from services.registry.domain.discovery.results import Hits
from services.registry.domain.ports import Catalogue


class SemanticUse(StrEnum):
    """What part meaning had in an answer."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    NOT_ASKED = "not_asked"
    UNAVAILABLE = "unavailable"


class NoMatch(StrEnum):
    """Why nothing was found."""

    EMPTY_REGISTRY = "empty_registry"
    NO_CANDIDATE = "no_candidate"
    ALL_FILTERED = "all_filtered"
    NOT_PERMITTED = "not_permitted"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer: hits, what part meaning had, and why there are none when there are none."""

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
    now: datetime,
) -> SearchResult:
    """Return what fits. References that lead to a tool, by name or alias, put it first; so does a text that is one."""
    query = replace(
        query, names=await _named(query.text, references, catalogue), only_names=bool(references) and not query.text
    )
    asks = semantic and bool(query.text)
    # Who gives a name means that tool; the model need not be loaded to find it.
    vector = await embeddings.vector_of(query.text) if asks and not query.names else None
    hits = searcher.search(replace(query, vector=vector), now)
    return SearchResult(hits, _use(asks and not query.names, vector, hits), _why_none(hits))


async def _named(text: str, references: Sequence[str], catalogue: Catalogue) -> tuple[ToolName, ...]:
    found = []
    for reference in (*references, *([text.strip()] if text else ())):
        try:
            tool = await catalogue.tool(ToolName.parse(reference))
        except MeshError:
            # A sentence is no reference, and a reference that is none leads nowhere.
            continue
        if tool is not None:
            found.append(tool.name)
    return tuple(dict.fromkeys(found))


def _use(asked: bool, vector: bytes | None, hits: Hits) -> SemanticUse:
    if not asked:
        return SemanticUse.NOT_ASKED
    if vector is None:
        return SemanticUse.UNAVAILABLE
    return SemanticUse.PARTIAL if hits.without_vector else SemanticUse.COMPLETE


def _why_none(hits: Hits) -> NoMatch | None:
    if hits.hits:
        return None
    if not hits.tools:
        return NoMatch.EMPTY_REGISTRY
    if not hits.candidates:
        return NoMatch.NO_CANDIDATE
    return NoMatch.NOT_PERMITTED if hits.removed.get("permission") == hits.candidates else NoMatch.ALL_FILTERED
