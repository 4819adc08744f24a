"""RateTool, RecordSecurityAudit and RecordVerification: add facts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import ToolName, split_version_name
from services.registry.domain.lifecycle.change_state import find_version
from services.registry.domain.model import Actor
from services.registry.domain.namespaces.ownership import is_operator
from services.registry.domain.ports import Histories
from services.registry.domain.trust.compute_score import TrustScorer
from services.registry.domain.trust.facts import Audit, AuditLevel, Fact, Rating, Ratings
from services.registry.domain.trust.rescore import rescore


def own_tool_not_ratable(tool: ToolName) -> MeshError:
    return MeshError(
        Reason.PERMISSION_DENIED,
        message="publishers may not rate their own tools",
        metadata={"tool": tool.qualified},
    )


def third_party_audit_needs_operator() -> MeshError:
    return MeshError(Reason.PERMISSION_DENIED, message="only the operator may record a third-party audit")


async def rate_tool(
    version: str, stars: int, comment: str, by: Actor, *, scorer: TrustScorer, histories: Histories
) -> Ratings:
    """Store one subject's rating of a version, and return the ratings of the tool."""
    tool, number = await _existing(version, scorer)
    namespace = await histories.namespace(tool.namespace)
    if namespace is not None and by.recorded_name in (namespace.owner, *namespace.delegates):
        raise own_tool_not_ratable(tool)
    await scorer.store.rate(Rating(tool, number, by.recorded_name, stars, comment, scorer.clock.now()))
    await rescore(tool, scorer)
    return await scorer.store.ratings(tool)


async def record_fact(
    version: str, by: Actor, make: Callable[[ToolName, str, datetime], Fact], *, scorer: TrustScorer
) -> str:
    """Add a fact about a version and return its id. Only the operator may record third-party audits."""
    tool, number = await _existing(version, scorer)
    fact = make(tool, number, scorer.clock.now())
    if isinstance(fact, Audit) and fact.level is AuditLevel.THIRD_PARTY and not is_operator(by):
        raise third_party_audit_needs_operator()
    fact_id = await scorer.store.record(fact)
    await rescore(tool, scorer)
    return fact_id


async def _existing(version: str, scorer: TrustScorer) -> tuple[ToolName, str]:
    tool, number = split_version_name(version)
    find_version(tool, number, await scorer.catalogue.heads([tool]))
    return tool, number
