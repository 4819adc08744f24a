"""GetToolSchemas: returns the schemas of tools that were only listed so far, with their digests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import ToolName, split_version_name
from services.registry.domain.caller import Caller
from services.registry.domain.catalog.page_size import ANSWER_BYTES
from services.registry.domain.catalog.resolve import resolve
from services.registry.domain.discovery import rendering
from services.registry.domain.discovery.compile_surface import Tier
from services.registry.domain.discovery.tokens import TokenCounter
from services.registry.domain.model import ToolVersion, Usability, VersionHead
from services.registry.domain.ports import CallPolicy, Catalogue
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.trust.ports import TrustScores


class UnloadedReason(StrEnum):
    """Why a schema is not returned."""

    NOT_FOUND = "not_found"
    UNAVAILABLE = "unavailable"
    NOT_PERMITTED = "not_permitted"
    OVER_BUDGET = "over_budget"


@dataclass(frozen=True, slots=True)
class RenderedSchema:
    """A version with its manifest, the requested reference, and the rendered text."""

    asked: str
    version: ToolVersion
    manifest: Manifest
    text: str
    tokens: int
    needs_approval: bool


@dataclass(frozen=True, slots=True)
class UnloadedTool:
    """A tool whose schema is not returned."""

    tool: str
    reason: UnloadedReason
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class ToolSchemas:
    """The loaded schemas, the tools that were not loaded, and the total token count."""

    tier: Tier
    loaded: Sequence[RenderedSchema]
    unloaded: Sequence[UnloadedTool]
    tokens: int
    tokenizer: str


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """The requested tools, the level of detail, and the token budget; 0 means no limit."""

    tools: tuple[str, ...]
    tier: Tier
    tokenizer: str
    budget: int
    caller: Caller | None


async def get_tool_schemas(
    request: SchemaRequest,
    *,
    catalogue: Catalogue,
    policy: CallPolicy | None,
    trust: TrustScores,
    counter: TokenCounter,
    now: datetime,
) -> ToolSchemas:
    """Return the schemas in the requested order while the budget lasts. Tools that the caller may not call are not
    shown."""
    tokenizer = counter.tokenizer(request.tokenizer)
    found = await _permitted_heads(request, catalogue, policy, now)
    loaded: list[RenderedSchema] = []
    unloaded: list[UnloadedTool] = []
    spent = size = 0
    render = rendering.detail_text if request.tier is Tier.DETAIL else rendering.schema_text
    for reference, (head, needs_approval) in found.items():
        if isinstance(head, UnloadedReason):
            unloaded.append(UnloadedTool(reference, head))
            continue
        [version] = await catalogue.with_manifests([head])
        manifest = version.manifest
        if manifest is None or not _permitted(head, manifest, request.caller):
            unloaded.append(UnloadedTool(reference, UnloadedReason.NOT_PERMITTED))
            continue
        alike = trust.trust_in(head.tool).look_alikes
        text = render(manifest, needs_approval=needs_approval, look_alikes=alike)
        [tokens] = await counter.count([text], tokenizer)
        # The message size is a budget, too.
        if (request.budget and spent + tokens > request.budget) or (loaded and size + version.head.size > ANSWER_BYTES):
            unloaded.append(UnloadedTool(reference, UnloadedReason.OVER_BUDGET, tokens))
            continue
        loaded.append(RenderedSchema(reference, version, manifest, text, tokens, needs_approval))
        spent, size = spent + tokens, size + version.head.size
    return await _counted(request, loaded, unloaded, tokenizer, counter)


async def _permitted_heads(
    request: SchemaRequest, catalogue: Catalogue, policy: CallPolicy | None, now: datetime
) -> dict[str, tuple[VersionHead | UnloadedReason, bool]]:
    """Return the version that each reference means and whether its calls need an approval, or why it is not shown."""
    heads = {
        reference: await _head(reference, request.caller, catalogue, now) for reference in dict.fromkeys(request.tools)
    }
    found: dict[str, tuple[VersionHead | UnloadedReason, bool]] = {
        reference: (head, False) for reference, head in heads.items()
    }
    resolved = {reference: head for reference, head in heads.items() if isinstance(head, VersionHead)}
    if policy is None or not resolved:
        return found
    answers = await policy.usability_of(list(resolved.values()))
    for (reference, head), answer in zip(resolved.items(), answers, strict=True):
        shown = UnloadedReason.NOT_PERMITTED if answer is Usability.FORBIDDEN else head
        found[reference] = (shown, answer is Usability.NEEDS_APPROVAL)
    return found


async def _counted(
    request: SchemaRequest,
    loaded: list[RenderedSchema],
    unloaded: list[UnloadedTool],
    tokenizer: str,
    counter: TokenCounter,
) -> ToolSchemas:
    """Count the joined text, and drop schemas until it fits the budget."""
    while True:
        [total] = await counter.count(["".join(schema.text for schema in loaded)], tokenizer)
        if not loaded or not request.budget or total <= request.budget:
            return ToolSchemas(request.tier, loaded, unloaded, total, tokenizer)
        dropped = loaded.pop()
        unloaded.append(UnloadedTool(dropped.asked, UnloadedReason.OVER_BUDGET, dropped.tokens))


async def _head(
    reference: str, caller: Caller | None, catalogue: Catalogue, now: datetime
) -> VersionHead | UnloadedReason:
    try:
        asked, constraint = _asked(reference)
        tool = await catalogue.tool(asked)
        if tool is None:
            return UnloadedReason.NOT_FOUND
        heads = await catalogue.heads([tool.name])
        if caller is not None and not constraint:
            # A caller with access to some versions means those; one with access to none gets NOT_PERMITTED for the
            # default version.
            heads = [head for head in heads if caller.is_granted(head)] or heads
        return resolve(tool.name, heads, constraint, now)
    except MeshError as error:
        unavailable = error.reason in (Reason.TOOL_UNAVAILABLE, Reason.TOOL_DEPRECATED)
        if not unavailable and error.reason not in _NOWHERE:
            raise
        return UnloadedReason.UNAVAILABLE if unavailable else UnloadedReason.NOT_FOUND


_NOWHERE = frozenset({Reason.TOOL_NOT_FOUND, Reason.TOOL_VERSION_NOT_FOUND, Reason.INVALID_REQUEST})


def _asked(reference: str) -> tuple[ToolName, str]:
    return split_version_name(reference) if "/versions/" in reference else (ToolName.parse(reference), "")


def _permitted(head: VersionHead, manifest: Manifest, caller: Caller | None) -> bool:
    if caller is None:
        return True
    scopes = frozenset(manifest.part("permission").get("required_scopes", ()))
    return caller.is_granted(head) and scopes <= caller.scopes
