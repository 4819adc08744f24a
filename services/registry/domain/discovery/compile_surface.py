"""CompileSurface: renders as much about the tools as fits a token budget, most useful first.

The index comes first, in the fullest form that leaves room for schemas; then the most valuable set of schemas; then the
details of truncated schemas. The final text is counted as a whole, so the budget holds even if the sums are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum, StrEnum

from libs.common.ids import new_id
from libs.common.runtime.clock import Clock
from services.registry.domain.catalog.page_size import count_fitting
from services.registry.domain.discovery import rendering
from services.registry.domain.discovery.environment import Category, Eligibility, SurfaceEnvironment
from services.registry.domain.discovery.permissions import ask_policy
from services.registry.domain.discovery.ports import Searcher
from services.registry.domain.discovery.query import Filters, Query
from services.registry.domain.discovery.query_embeddings import QueryEmbeddings
from services.registry.domain.discovery.results import Hit, Listing
from services.registry.domain.discovery.tokens import TokenCounter
from services.registry.domain.ports import CallPolicy, Catalogue
from services.registry.domain.publishing.token_costs import stated_token_cost
from services.registry.domain.trust.ports import TrustScores

# Schemas with less than this share of the best utility are not shown, even if there is room.
_WORTH_SHOWING = 0.2
_SCHEMAS = 64
_CATEGORY_LINES = 40


class Tier(IntEnum):
    """The level of detail about a tool."""

    INDEX = 1
    SCHEMA = 2
    DETAIL = 3


class ReductionStep(StrEnum):
    """A step by which detail was reduced."""

    CATEGORIES = "categories"
    FEWER_SCHEMAS = "fewer_schemas"
    NO_SCHEMAS = "no_schemas"
    NAMES_ONLY = "names_only"
    FEWER_TOOLS = "fewer_tools"
    CATEGORIES_ONLY = "categories_only"
    POINTER_ONLY = "pointer_only"


@dataclass(frozen=True, slots=True)
class SurfaceRequest:
    """The task, budget, filters and environment of a surface."""

    task: str
    capabilities: tuple[str, ...]
    budget: int
    tokenizer: str
    filters: Filters
    environment: SurfaceEnvironment
    scope: str = ""


@dataclass(frozen=True, slots=True)
class SurfaceBlock:
    """A piece of the text. The index block has no hit."""

    tier: Tier
    text: str
    tokens: int
    hit: Hit | None = None


@dataclass(frozen=True, slots=True)
class Surface:
    """The compiled surface with the data it was derived from."""

    surface_id: str
    create_time: datetime
    request: SurfaceRequest
    tokenizer: str
    token_count: int
    blocks: Sequence[SurfaceBlock]
    named: frozenset[str]
    """The qualified names of the tools in the index."""
    eligibility: Eligibility
    steps: Sequence[ReductionStep]
    utility: float
    utility_possible: float


@dataclass(frozen=True, slots=True)
class BudgetTooSmall:
    """The budget does not hold the first line."""

    budget: int
    required: int
    tokenizer: str


@dataclass(frozen=True, slots=True)
class _IndexForm:
    """One form of the index, and the share of the budget that it may take."""

    text: str
    share: float
    steps: tuple[ReductionStep, ...]
    named: tuple[Listing, ...] = ()


async def compile_surface(
    request: SurfaceRequest,
    *,
    searcher: Searcher,
    embeddings: QueryEmbeddings,
    counter: TokenCounter,
    catalogue: Catalogue,
    policy: CallPolicy | None,
    trust: TrustScores,
    clock: Clock,
) -> Surface | BudgetTooSmall:
    """Return a surface within the budget, or the minimum budget that is needed. Without a policy, nothing is forbidden
    by it: the surface is not for a caller."""
    tokenizer = counter.tokenizer(request.tokenizer)
    vector = await embeddings.vector_of(request.task) if request.task else None
    query = Query(text=request.task, capabilities=request.capabilities, vector=vector, filters=request.filters)
    eligibility = await _eligibility(query, request.environment, searcher, policy, clock)
    forms = _forms(eligibility)
    counts = await counter.count([form.text for form in forms], tokenizer)
    if counts[-1] > request.budget:
        return BudgetTooSmall(request.budget, counts[-1], tokenizer)
    form, used = next((f, n) for f, n in zip(forms, counts, strict=True) if n <= request.budget * f.share)
    schemas, possible, offered = await _schemas(
        eligibility, request.budget - used, tokenizer, searcher, counter, catalogue, trust
    )
    blocks = [SurfaceBlock(Tier.INDEX, form.text, used), *schemas]
    blocks, total = await _fit_budget(blocks, request.budget, tokenizer, counter)
    return Surface(
        surface_id=f"surfaces/{new_id()}",
        create_time=clock.now(),
        request=request,
        tokenizer=tokenizer,
        token_count=total,
        blocks=blocks,
        named=frozenset(listing.name.qualified for listing in form.named),
        eligibility=eligibility,
        steps=_steps(form.steps, len(blocks) - 1, offered),
        utility=sum(block.hit.score.utility for block in blocks if block.hit),
        utility_possible=possible,
    )


async def _eligibility(
    query: Query, environment: SurfaceEnvironment, searcher: Searcher, policy: CallPolicy | None, clock: Clock
) -> Eligibility:
    """Return the eligibility of every tool, after policy was asked about those that the token covers."""
    eligibility = searcher.assess_eligibility(query, environment, clock.now())
    if policy is None:
        return eligibility
    permissions = await ask_policy(eligibility.candidates, policy)
    query = replace(query, filters=replace(query.filters, permissions=permissions))
    return searcher.assess_eligibility(query, environment, clock.now())


def _forms(eligibility: Eligibility) -> list[_IndexForm]:
    """Return the forms of the index, fullest first. The last one only states the number of tools."""
    head = rendering.heading(eligibility.usable, approvals=bool(eligibility.need_approval))
    forms = []
    if eligibility.usable:
        forms = _by_category(eligibility, head) if eligibility.categories else _in_one_list(eligibility, head)
    return [
        *forms,
        _IndexForm(
            rendering.pointer(eligibility.usable), 1.0, (ReductionStep.POINTER_ONLY,) if eligibility.usable else ()
        ),
    ]


def _in_one_list(eligibility: Eligibility, head: str) -> list[_IndexForm]:
    members, marked = tuple(eligibility.members), eligibility.need_approval
    forms = [
        _IndexForm(head + rendering.index_lines(members, titles=True, approvals=marked), 0.5, (), members),
        _IndexForm(
            head + rendering.index_lines(members, titles=False, approvals=marked),
            0.75,
            (ReductionStep.NAMES_ONLY,),
            members,
        ),
    ]
    for count in _halvings(len(members)):
        shown = members[:count]
        lines = rendering.index_lines(shown, titles=False, approvals=marked)
        forms.append(_IndexForm(head + lines, 1.0, (ReductionStep.NAMES_ONLY, ReductionStep.FEWER_TOOLS), shown))
    return forms


def _by_category(eligibility: Eligibility, head: str) -> list[_IndexForm]:
    members, marked = tuple(eligibility.members), eligibility.need_approval
    lines = _category_lines(eligibility.categories[:_CATEGORY_LINES])
    forms = [
        _IndexForm(
            head + lines + rendering.index_lines(members, titles=True, approvals=marked),
            0.5,
            (ReductionStep.CATEGORIES,),
            members,
        ),
        _IndexForm(
            head + lines + rendering.index_lines(members, titles=False, approvals=marked),
            0.5,
            (ReductionStep.CATEGORIES, ReductionStep.NAMES_ONLY),
            members,
        ),
    ]
    few = (ReductionStep.CATEGORIES, ReductionStep.NAMES_ONLY, ReductionStep.FEWER_TOOLS)
    for count in _halvings(len(members)):
        shown = members[:count]
        some = _category_lines(eligibility.categories[: max(count // 2, 3)])
        forms.append(
            _IndexForm(head + some + rendering.index_lines(shown, titles=False, approvals=marked), 0.5, few, shown)
        )
    only = (ReductionStep.CATEGORIES, ReductionStep.CATEGORIES_ONLY)
    forms.extend(
        _IndexForm(head + _category_lines(eligibility.categories[:count]), 1.0, only)
        for count in (_CATEGORY_LINES, *_halvings(min(len(eligibility.categories), _CATEGORY_LINES)))
    )
    return forms


def _category_lines(categories: Sequence[Category]) -> str:
    return "".join(rendering.category_line(category.name, category.tools) for category in categories)


def _halvings(count: int) -> list[int]:
    counts = []
    while count > 1:
        count //= 2
        counts.append(count)
    return counts


async def _schemas(
    eligibility: Eligibility,
    budget: int,
    tokenizer: str,
    searcher: Searcher,
    counter: TokenCounter,
    catalogue: Catalogue,
    trust: TrustScores,
) -> tuple[list[SurfaceBlock], float, int]:
    """Return the schema blocks, the utility of all useful schemas, and their number."""
    top = eligibility.useful[0].score.utility if eligibility.useful else 0.0
    hits = [hit for hit in eligibility.useful if hit.score.utility > max(top * _WORTH_SHOWING, 0.0)][:_SCHEMAS]
    hits = hits[: count_fitting(hit.head.size for hit in hits)]
    possible = sum(hit.score.utility for hit in hits)
    manifests = [version.manifest for version in await catalogue.with_manifests([hit.head for hit in hits])]
    alike = [trust.trust_in(hit.listing.name).look_alikes for hit in hits]
    texts = [
        rendering.schema_text(manifest, needs_approval=hit.needs_approval, look_alikes=names)
        for hit, manifest, names in zip(hits, manifests, alike, strict=True)
        if manifest is not None
    ]
    tokens = await counter.count(texts, tokenizer)
    # A stated cost never makes a schema cheaper than what is counted.
    stated = [stated_token_cost(manifest) for manifest in manifests if manifest is not None]
    costs = [max(counted, cost) for counted, cost in zip(tokens, stated, strict=True)]
    chosen = searcher.select_within_budget([hit.score.utility for hit in hits], costs, max(budget, 0))
    left = budget - sum(costs[at] for at in chosen)
    whole = {
        at: rendering.detail_text(m, needs_approval=hits[at].needs_approval, look_alikes=alike[at])
        for at in chosen
        if (m := manifests[at]) is not None and _is_truncated(texts[at])
    }
    sizes = dict(zip(whole, await counter.count(list(whole.values()), tokenizer), strict=True))
    blocks = []
    for at in sorted(chosen, key=lambda at: -hits[at].score.utility):
        if at in whole and sizes[at] - tokens[at] <= left:
            left -= sizes[at] - tokens[at]
            blocks.append(SurfaceBlock(Tier.DETAIL, whole[at], sizes[at], hits[at]))
        else:
            blocks.append(SurfaceBlock(Tier.SCHEMA, texts[at], tokens[at], hits[at]))
    return blocks, possible, len(hits)


def _is_truncated(text: str) -> bool:
    return rendering.TRUNCATED_MARKER in text


async def _fit_budget(
    blocks: list[SurfaceBlock], budget: int, tokenizer: str, counter: TokenCounter
) -> tuple[list[SurfaceBlock], int]:
    """Count the joined text and drop the least useful blocks while it is too long. The blocks are built so that this
    does not happen; the check guarantees the budget."""
    while True:
        [total] = await counter.count(["".join(block.text for block in blocks)], tokenizer)
        if total <= budget or len(blocks) == 1:
            return blocks, total
        blocks = blocks[:-1]


def _steps(index: tuple[ReductionStep, ...], shown: int, useful: int) -> tuple[ReductionStep, ...]:
    if shown == useful:
        return index
    return (*index, ReductionStep.FEWER_SCHEMAS if shown else ReductionStep.NO_SCHEMAS)
