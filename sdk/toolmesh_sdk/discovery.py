"""Tools that were searched for, and their schemas in the forms that model interfaces take."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict

from toolmesh.common.v1.error_table import Reason
from toolmesh.registry.v1 import discovery_service_pb2 as pb
from toolmesh.registry.v1 import tool_manifest_pb2, tool_version_pb2

from toolmesh_sdk._wire.payload import parse
from toolmesh_sdk.errors import error_for_reason

SCHEMAS_PER_REQUEST = 50
_MAX_FUNCTION_NAME = 64


class SearchOptions(TypedDict, total=False):
    """Options of a search; omitted ones let every tool through that the token allows.

    `keywords_only` leaves out the search by meaning. `include_forbidden` adds tools that the token does not allow.
    """

    capabilities: Iterable[str]
    tags: Iterable[str]
    namespaces: Iterable[str]
    min_trust: float
    max_cost: float
    read_only: bool
    version: str
    keywords_only: bool
    include_forbidden: bool


class SurfaceOptions(TypedDict, total=False):
    """Options of a surface. `tokenizer` is o200k_base or cl100k_base; `scope` says what the surface is for."""

    capabilities: Iterable[str]
    tags: Iterable[str]
    namespaces: Iterable[str]
    min_trust: float
    read_only: bool
    tokenizer: str
    model: str
    scope: str


@dataclass(frozen=True, slots=True)
class LookAlike:
    """A tool or namespace of another owner with a similar name, as a resource name.

    `kind` is homoglyph or lookalike. `older` is true if the other name was registered first.
    """

    name: str
    kind: str
    older: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTool:
    """One tool that a search found.

    `usability` is allowed or needs_approval, before arguments are known. `no_runner` says why no executor can run the
    tool at present; empty if one can.
    """

    name: str
    version: str
    digest: str
    title: str
    description: str
    mutation_class: str
    state: str
    score: float
    trust: float
    relevance: float
    usability: str
    no_runner: str
    look_alikes: tuple[LookAlike, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The tools that were found, best first. `no_match` says why there are none, and `nearest` names similar tools."""

    tools: tuple[FoundTool, ...]
    candidates: int
    no_match: str
    nearest: tuple[str, ...]

    def __iter__(self) -> Iterator[FoundTool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)

    def __getitem__(self, index: int) -> FoundTool:
        return self.tools[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """The schemas of one version. Pass `name`, `version` and `digest` to `call`: it then runs exactly this version."""

    name: str
    version: str
    digest: str
    title: str
    description: str
    mutation_class: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    state: str
    text: str
    tokens: int
    needs_approval: bool

    @property
    def function_name(self) -> str:
        """The name for interfaces that allow only letters, digits, `_` and `-`: `acme__pay` for `acme.pay`.

        A namespace has no underscore, so two tools never share a name. A longer one is cut and ends in a hash.
        """
        name = self.name.replace(".", "__", 1)
        if len(name) <= _MAX_FUNCTION_NAME:
            return name
        return f"{name[: _MAX_FUNCTION_NAME - 13]}_{hashlib.sha256(self.name.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class ToolSet:
    """Schemas of several tools, to be given to a model."""

    tools: tuple[ToolSchema, ...]

    def __iter__(self) -> Iterator[ToolSchema]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)

    def find(self, name: str) -> ToolSchema:
        """Return a tool by the name that a model chose: its function name or its own. Raises TOOL_NOT_FOUND."""
        tool = self._by_name.get(name)
        if tool is None:
            raise error_for_reason(Reason.TOOL_NOT_FOUND, metadata={"tool": name[:320]})
        return tool

    def as_openai(self) -> list[dict[str, Any]]:
        """Return the `tools` of a chat completion of OpenAI."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.function_name,
                    "description": tool.description,
                    "parameters": dict(tool.input_schema),
                },
            }
            for tool in self.tools
        ]

    def as_anthropic(self) -> list[dict[str, Any]]:
        """Return the `tools` of a message of Anthropic."""
        return [
            {"name": tool.function_name, "description": tool.description, "input_schema": dict(tool.input_schema)}
            for tool in self.tools
        ]

    def as_mcp(self) -> list[dict[str, Any]]:
        """Return the `tools` of a `tools/list` result of MCP."""
        return [_mcp_tool(tool) for tool in self.tools]

    @cached_property
    def _by_name(self) -> Mapping[str, ToolSchema]:
        return {name: tool for tool in self.tools for name in (tool.name, tool.function_name)}


@dataclass(frozen=True)
class LoadedSchemas(ToolSet):
    """The schemas that were asked for. `unloaded` maps each tool that has none to the reason."""

    unloaded: Mapping[str, str]


@dataclass(frozen=True)
class Surface(ToolSet):
    """The tools for one task within a token budget.

    `text` is for the prompt and has at most `token_budget` tokens: an index of names, and the schemas of `tools`.
    `deferred` are further tools that `search` and `schemas` find. The budget does not cover `as_openai`, `as_anthropic`
    and `as_mcp`: these hold the same tools with whole schemas, for interfaces that take tools beside the prompt.
    """

    surface_id: str
    text: str
    token_count: int
    token_budget: int
    tokenizer: str
    deferred: tuple[str, ...]


def search_request(query: str, max_results: int, options: SearchOptions) -> pb.SearchToolsRequest:
    """Build the request of a search."""
    tools = _filter(options, options.get("version", ""), options.get("max_cost"))
    tools.include_forbidden = options.get("include_forbidden", False)
    return pb.SearchToolsRequest(
        query=query,
        capabilities=list(options.get("capabilities", ())),
        max_results=max_results,
        mode=pb.SEARCH_MODE_LEXICAL if options.get("keywords_only") else pb.SEARCH_MODE_HYBRID,
        filter=tools,
    )


def surface_request(task: str, budget: int, options: SurfaceOptions) -> pb.CompileSurfaceRequest:
    """Build the request of a surface."""
    return pb.CompileSurfaceRequest(
        task=task,
        capabilities=list(options.get("capabilities", ())),
        token_budget=budget,
        tokenizer=options.get("tokenizer", ""),
        filter=_filter(options),
        context=pb.SurfaceContext(model=options.get("model", "")),
        scope=options.get("scope", ""),
    )


def schemas_requests(tools: Iterable[str], *, detail: bool = False) -> list[pb.GetToolSchemasRequest]:
    """Build the requests for the schemas of tools or versions, as many tools in each as one request may have."""
    names = list(tools)
    tier = pb.SURFACE_TIER_DETAIL if detail else pb.SURFACE_TIER_SCHEMA
    batches = [names[start : start + SCHEMAS_PER_REQUEST] for start in range(0, len(names), SCHEMAS_PER_REQUEST)]
    return [pb.GetToolSchemasRequest(tools=batch, tier=tier) for batch in batches]


def parse_search(response: pb.SearchToolsResponse) -> SearchResult:
    """Convert a search response."""
    reason = response.no_match.reason
    return SearchResult(
        tools=tuple(_found(tool) for tool in response.tools),
        candidates=response.total_candidates,
        no_match=_word(pb.NoMatchReason, "NO_MATCH_REASON_", reason) if reason else "",
        nearest=tuple(response.no_match.nearest),
    )


def compiled_surface(response: pb.CompileSurfaceResponse) -> pb.ToolSurface:
    """Return the surface. Raises INVALID_REQUEST for a budget that holds none, with the smallest that would do."""
    if response.HasField("surface"):
        return response.surface
    small = response.budget_too_small
    raise error_for_reason(
        Reason.INVALID_REQUEST,
        message=f"A budget of {small.token_budget} tokens is too small; at least {small.required_tokens} are needed.",
        metadata={"token_budget": str(small.token_budget), "required_tokens": str(small.required_tokens)},
    )


def parse_surface(surface: pb.ToolSurface, responses: Iterable[pb.GetToolSchemasResponse]) -> Surface:
    """Convert a surface and the schemas of its loaded tools."""
    return Surface(
        tools=_schemas(responses),
        surface_id=surface.surface_id,
        text="".join(block.text for block in surface.blocks),
        token_count=surface.token_count,
        token_budget=surface.token_budget,
        tokenizer=surface.tokenizer,
        deferred=tuple(tool.name.removeprefix("tools/") for tool in surface.deferred_tools),
    )


def parse_schemas(responses: Iterable[pb.GetToolSchemasResponse]) -> LoadedSchemas:
    """Convert the responses to requests for schemas."""
    pages = list(responses)
    unloaded = {
        tool.tool: _word(pb.UnloadedReason, "UNLOADED_REASON_", tool.reason) for page in pages for tool in page.unloaded
    }
    return LoadedSchemas(tools=_schemas(pages), unloaded=unloaded)


def _filter(options: Any, version: str = "", max_cost: float | None = None) -> pb.SearchFilter:
    return pb.SearchFilter(
        min_trust=options.get("min_trust", 0.0),
        max_cost=max_cost,
        mutation_classes=[tool_manifest_pb2.MUTATION_CLASS_READ_ONLY] if options.get("read_only") else [],
        namespaces=list(options.get("namespaces", ())),
        tags=list(options.get("tags", ())),
        version_constraint=version,
    )


def _found(tool: pb.FoundTool) -> FoundTool:
    name, version = _name_and_version(tool.version)
    return FoundTool(
        name=name,
        version=version,
        digest=tool.digest,
        title=tool.title,
        description=tool.description,
        mutation_class=_mutation_class(tool.mutation_class),
        state=_state(tool.state),
        score=tool.score.score,
        trust=tool.score.trust,
        relevance=tool.score.relevance,
        usability=_word(pb.ToolUsability, "TOOL_USABILITY_", tool.usability),
        no_runner=tool.no_runner,
        look_alikes=tuple(LookAlike(each.name, each.kind, each.older) for each in tool.look_alikes),
    )


def _schemas(responses: Iterable[pb.GetToolSchemasResponse]) -> tuple[ToolSchema, ...]:
    return tuple(_schema(schema) for response in responses for schema in response.schemas)


def _schema(schema: pb.ToolSchema) -> ToolSchema:
    name, version = _name_and_version(schema.version)
    return ToolSchema(
        name=name,
        version=version,
        digest=schema.digest,
        title=schema.title,
        description=schema.description,
        mutation_class=_mutation_class(schema.mutation_class),
        input_schema=parse(schema.input_schema) or {},
        output_schema=parse(schema.output_schema) or {},
        state=_state(schema.state),
        text=schema.block.text,
        tokens=schema.block.tokens,
        needs_approval=schema.needs_approval,
    )


def _mcp_tool(tool: ToolSchema) -> dict[str, Any]:
    described = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": dict(tool.input_schema),
        "annotations": {
            "readOnlyHint": tool.mutation_class == "read_only",
            "destructiveHint": tool.mutation_class == "write_irreversible",
        },
    }
    # MCP takes an output schema only of objects.
    return {**described, "outputSchema": dict(tool.output_schema)} if _is_object(tool.output_schema) else described


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _name_and_version(resource: str) -> tuple[str, str]:
    """Split a resource name such as `tools/acme.pay/versions/1.0.0`."""
    name, _, version = resource.removeprefix("tools/").partition("/versions/")
    return name, version


def _mutation_class(number: int) -> str:
    return _word(tool_manifest_pb2.MutationClass, "MUTATION_CLASS_", number)


def _state(number: int) -> str:
    return _word(tool_version_pb2.LifecycleState, "LIFECYCLE_STATE_", number)


def _word(kind: Any, prefix: str, number: int) -> str:
    """Return the lower-case word of an enum's value; the number itself where only a newer mesh knows it."""
    value = kind.DESCRIPTOR.values_by_number.get(number)
    return value.name.removeprefix(prefix).lower() if value else str(number)
