"""Conversions of the discovery service."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.registry.v1 import discovery_service_pb2 as pb
from toolmesh.registry.v1 import tool_manifest_pb2, tool_version_pb2

from libs.common.call_context import Call
from libs.common.errors import MeshError
from libs.common.json.jsonio import dump
from libs.common.tool_names import ToolName
from services.registry.convert.registry import deprecation_of, look_alikes
from services.registry.convert.shared import caller_of
from services.registry.domain.caller import Caller
from services.registry.domain.discovery.compile_surface import (
    BudgetTooSmall,
    Surface,
    SurfaceBlock,
    SurfaceRequest,
    Tier,
)
from services.registry.domain.discovery.environment import BLOCKING, SurfaceEnvironment, SurfaceReason, WithheldTool
from services.registry.domain.discovery.get_tool_schemas import SchemaRequest, ToolSchemas
from services.registry.domain.discovery.query import CALLABLE, Filters, Query
from services.registry.domain.discovery.results import Hit, Hits, HitScore
from services.registry.domain.discovery.search_tools import NoMatch, SearchResult
from services.registry.domain.model import LifecycleState
from services.registry.domain.publishing.manifest import MutationClass
from services.registry.domain.runners.announcement import RunnerSet
from services.registry.domain.trust.ports import TrustScores

_DEFAULT_RESULTS = 10
_DEFERRED = 100
SELECTION_POLICY = "utility-per-token/1"


def query_of(request: pb.SearchToolsRequest, call: Call) -> Query:
    filters = request.filter
    caller = None if filters.include_forbidden else caller_of(call)
    return Query(
        text=request.query.strip(),
        capabilities=tuple(request.capabilities),
        filters=_filters(filters, caller),
        limit=request.max_results or _DEFAULT_RESULTS,
    )


def wants_embeddings(request: pb.SearchToolsRequest) -> bool:
    return request.mode != pb.SEARCH_MODE_LEXICAL


def surface_request_of(request: pb.CompileSurfaceRequest, call: Call, runners: RunnerSet) -> SurfaceRequest:
    context = request.context
    return SurfaceRequest(
        task=request.task.strip(),
        capabilities=tuple(request.capabilities),
        budget=request.token_budget,
        tokenizer=request.tokenizer,
        filters=_filters(request.filter, caller_of(call)),
        environment=SurfaceEnvironment(
            features=frozenset(context.features),
            credentials=frozenset(context.credentials),
            model=context.model,
            model_capabilities=frozenset(context.model_capabilities),
            call_chain=frozenset(_names(context.call_chain)),
            runners=runners,
        ),
        scope=request.scope,
    )


def schema_request_of(request: pb.GetToolSchemasRequest, call: Call) -> SchemaRequest:
    tier = Tier.DETAIL if request.tier == pb.SURFACE_TIER_DETAIL else Tier.SCHEMA
    return SchemaRequest(tuple(request.tools), tier, request.tokenizer, request.token_budget, caller_of(call))


def search_response(result: SearchResult, model: str, runners: RunnerSet, trust: TrustScores) -> pb.SearchToolsResponse:
    hits = result.hits
    return pb.SearchToolsResponse(
        tools=[_found_tool(hit, runners, trust) for hit in hits.hits],
        total_candidates=hits.candidates,
        total_filtered=hits.passed,
        filter_effects=[pb.FilterEffect(filter=name, removed=count) for name, count in hits.removed.items()],
        no_match=_no_match(result.no_match, hits) if result.no_match else None,
        semantic_use=_enum(pb.SemanticUse, result.semantic_use),
        semantic_pending=hits.without_vector,
        semantic_model=model,
    )


def _no_match(reason: NoMatch, hits: Hits) -> pb.NoMatch:
    nearest = [listing.name.qualified for listing in hits.nearest]
    return pb.NoMatch(reason=_enum(pb.NoMatchReason, reason), nearest=nearest)


def surface_response(outcome: Surface | BudgetTooSmall, call: Call) -> pb.CompileSurfaceResponse:
    if isinstance(outcome, BudgetTooSmall):
        small = pb.BudgetTooSmall(
            token_budget=outcome.budget, required_tokens=outcome.required, tokenizer=outcome.tokenizer
        )
        return pb.CompileSurfaceResponse(budget_too_small=small)
    return pb.CompileSurfaceResponse(surface=_surface(outcome, call))


def schemas_response(schemas: ToolSchemas, trust: TrustScores) -> pb.GetToolSchemasResponse:
    return pb.GetToolSchemasResponse(
        schemas=[
            pb.ToolSchema(
                version=schema.version.head.name,
                digest=schema.version.head.digest,
                block=pb.SurfaceBlock(
                    tier=_enum(pb.SurfaceTier, schemas.tier.name),
                    text=schema.text,
                    tokens=schema.tokens,
                    tool=schema.version.head.tool.resource,
                ),
                input_schema=dump(schema.manifest.input.get("schema", {})),
                output_schema=dump(schema.manifest.output.get("schema", {})),
                state=_state(schema.version.head.standing.state),
                title=schema.manifest.title,
                description=schema.manifest.text("description"),
                mutation_class=_mutation(schema.manifest.mutation_class),
                needs_approval=schema.needs_approval,
                look_alikes=look_alikes(trust.trust_in(schema.version.head.tool)),
                deprecation=deprecation_of(schema.version.head.standing),
            )
            for schema in schemas.loaded
        ],
        unloaded=[
            pb.UnloadedTool(tool=tool.tool, reason=_enum(pb.UnloadedReason, tool.reason), tokens=tool.tokens)
            for tool in schemas.unloaded
        ],
        token_count=schemas.tokens,
        tokenizer=schemas.tokenizer,
    )


def _filters(filters: pb.SearchFilter, caller: Caller | None) -> Filters:
    limited = filters.HasField("max_latency_p95")
    return Filters(
        min_trust=filters.min_trust,
        max_latency=filters.max_latency_p95.ToNanoseconds() / 1e9 if limited else None,
        max_cost=filters.max_cost if filters.HasField("max_cost") else None,
        mutation_classes=frozenset(
            MutationClass(_word(tool_manifest_pb2.MutationClass, number)) for number in filters.mutation_classes
        ),
        namespaces=frozenset(filters.namespaces),
        tags=frozenset(filters.tags),
        states=frozenset(LifecycleState(_word(tool_version_pb2.LifecycleState, number)) for number in filters.states)
        or CALLABLE,
        version_constraint=filters.version_constraint,
        caller=caller,
    )


def _names(references: Iterable[str]) -> Iterable[ToolName]:
    for reference in references:
        try:
            yield ToolName.parse(reference)
        except MeshError:
            # A text that is not a tool name cannot match a tool.
            continue


def _found_tool(hit: Hit, runners: RunnerSet, trust: TrustScores) -> pb.FoundTool:
    listing = hit.listing
    missing = runners.missing(listing.need)
    return pb.FoundTool(
        tool=listing.name.resource,
        version=hit.head.name,
        digest=hit.head.digest,
        title=listing.title,
        description=listing.summary,
        mutation_class=_mutation(listing.mutation_class),
        state=_state(hit.state),
        score=_score(hit.score),
        ref=_ref(hit, pb.SCHEMA_VISIBILITY_HIDDEN),
        no_runner=missing.message if missing else "",
        usability=_enum(pb.ToolUsability, hit.usability) if hit.usability else pb.TOOL_USABILITY_UNSPECIFIED,
        look_alikes=look_alikes(trust.trust_in(listing.name)),
        deprecation=deprecation_of(hit.head.standing),
    )


def _score(score: HitScore) -> pb.ToolScore:
    latency = Duration()
    latency.FromNanoseconds(round(score.latency_p95 * 1e9))
    return pb.ToolScore(
        score=score.total,
        trust=score.trust,
        relevance=score.relevance,
        latency=score.latency,
        cost=score.cost,
        exact=score.exact,
        lexical=score.lexical,
        capability=score.capability,
        semantic=score.semantic,
        all_words=score.all_words,
        latency_p95=latency,
        cost_per_call=score.cost_per_call,
    )


def _ref(hit: Hit, visibility: Any) -> pb.DeferredToolRef:
    listing = hit.listing
    deferred = visibility != pb.SCHEMA_VISIBILITY_SCHEMA
    return pb.DeferredToolRef(
        tool_id=listing.name.tool_id,
        name=listing.name.resource,
        namespace=listing.name.namespace,
        search_hint=listing.search_hint,
        source=listing.provider,
        schema_visibility=visibility,
        loading_state=pb.LOADING_STATE_LOADABLE if deferred else pb.LOADING_STATE_LOADED,
        reason=_reason(SurfaceReason.DEFERRED_UNTIL_DISCOVERED) if deferred else pb.SURFACE_REASON_UNSPECIFIED,
        selection_ref=hit.head.name,
        needs_approval=hit.needs_approval,
    )


def _surface(surface: Surface, call: Call) -> pb.ToolSurface:
    request, eligibility = surface.request, surface.eligibility
    loaded = {block.hit.listing.name for block in surface.blocks if block.hit}
    created = Timestamp()
    created.FromDatetime(surface.create_time)
    scopes = sorted(call.identity.scopes) if call.identity else []
    blocked = [item for item in eligibility.withheld if item.reason in BLOCKING]
    return pb.ToolSurface(
        surface_id=surface.surface_id,
        scope=request.scope,
        create_time=created,
        producer="registry",
        tokenizer=surface.tokenizer,
        token_budget=request.budget,
        token_count=surface.token_count,
        blocks=[_block(block) for block in surface.blocks],
        tool_refs=sorted({f"tools/{name}" for name in surface.named} | {name.resource for name in loaded}),
        loaded_tools=[_loaded(block) for block in surface.blocks if block.hit],
        deferred_tools=_deferred(surface),
        blocked_tools=[_withheld(item) for item in blocked],
        excluded_tools=[_withheld(item) for item in eligibility.withheld if item.reason not in BLOCKING],
        totals=pb.SurfaceTotals(
            usable=eligibility.usable,
            loaded=len(loaded),
            indexed=len(surface.named),
            blocked=eligibility.blocked,
            excluded=eligibility.excluded,
            filtered=eligibility.filtered,
        ),
        selection_policy=SELECTION_POLICY,
        default_tool_choice="auto",
        capability_requirements=request.capabilities,
        model_capabilities=sorted(request.environment.model_capabilities),
        role_constraints=scopes,
        policy_refs=["token:grants", "token:scopes", "authz:policies", "registry:lifecycle"],
        runtime_refs=["toolmesh.executor.v1.ExecutorService/Invoke"],
        surface_reason=[_enum(pb.SurfaceStep, step) for step in surface.steps],
        categories=[
            pb.SurfaceCategory(
                category=item.name, tools=item.tools, utility=item.utility, listed=item.name in eligibility.listed
            )
            for item in eligibility.categories
        ],
        utility=surface.utility,
        utility_possible=surface.utility_possible,
    )


def _block(block: SurfaceBlock) -> pb.SurfaceBlock:
    tool = block.hit.listing.name.resource if block.hit else ""
    return pb.SurfaceBlock(tier=_enum(pb.SurfaceTier, block.tier.name), text=block.text, tokens=block.tokens, tool=tool)


def _loaded(block: SurfaceBlock) -> pb.LoadedTool:
    hit = block.hit
    if hit is None:
        raise ValueError("the index is no tool")
    return pb.LoadedTool(
        version=hit.head.name,
        digest=hit.head.digest,
        tier=_enum(pb.SurfaceTier, block.tier.name),
        tokens=block.tokens,
        utility=hit.score.utility,
        needs_approval=hit.needs_approval,
    )


def _deferred(surface: Surface) -> list[pb.DeferredToolRef]:
    loaded = {block.hit.listing.name for block in surface.blocks if block.hit}
    refs: list[pb.DeferredToolRef] = []
    for hit in surface.eligibility.useful:
        if hit.listing.name not in loaded and len(refs) < _DEFERRED:
            shown = hit.listing.name.qualified in surface.named
            refs.append(_ref(hit, pb.SCHEMA_VISIBILITY_NAME if shown else pb.SCHEMA_VISIBILITY_HIDDEN))
    return refs


def _withheld(tool: WithheldTool) -> pb.WithheldTool:
    return pb.WithheldTool(tool=tool.listing.name.resource, reason=_reason(tool.reason), detail=tool.detail)


def _reason(reason: SurfaceReason) -> Any:
    return _enum(pb.SurfaceReason, reason)


def _mutation(mutation: MutationClass) -> Any:
    return _enum(tool_manifest_pb2.MutationClass, mutation)


def _state(state: LifecycleState) -> Any:
    return _enum(tool_version_pb2.LifecycleState, state)


def _prefix(kind: Any) -> str:
    return str(kind.DESCRIPTOR.values_by_number[0].name.removesuffix("UNSPECIFIED"))


@cache
def _enum(kind: Any, word: str) -> Any:
    return kind.Value(_prefix(kind) + word.upper())


def _word(kind: Any, number: int) -> str:
    return str(kind.Name(number)).removeprefix(_prefix(kind)).lower()
