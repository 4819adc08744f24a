"""RateTool, RecordSecurityAudit and RecordVerification: adding facts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import ToolName, split_version_name
from services.registry.domain.lifecycle.change_state import named
from services.registry.domain.model import Registrar
from services.registry.domain.namespaces.ownership import is_operator
from services.registry.domain.ports import Histories
from services.registry.domain.trust.compute_score import Scales
from services.registry.domain.trust.facts import Audit, AuditLevel, Fact, Rating, Ratings
from services.registry.domain.trust.rescore import rescore


def own_tool_not_ratable(tool: ToolName) -> MeshError:
    return MeshError(
        Reason.PERMISSION_DENIED,
        message="whoever publishes a tool does not rate it",
        metadata={"tool": tool.qualified},
    )


def third_party_is_attested_by_the_operator() -> MeshError:
    return MeshError(Reason.PERMISSION_DENIED, message="only the operator records the audit of a third party")


async def rate_tool(
    version: str, stars: int, comment: str, by: Registrar, *, scales: Scales, histories: Histories
) -> Ratings:
    """Keep one subject's rating of one version, and return how the tool is rated now."""
    tool, number = await _existing(version, scales)
    namespace = await histories.namespace(tool.namespace)
    if namespace is not None and by.recorded in (namespace.owner, *namespace.delegates):
        raise own_tool_not_ratable(tool)
    await scales.book.rate(Rating(tool, number, by.recorded, stars, comment, scales.clock.now()))
    await rescore(tool, scales)
    return await scales.book.ratings(tool)


async def record_fact(
    version: str, by: Registrar, make: Callable[[ToolName, str, datetime], Fact], *, scales: Scales
) -> str:
    """Add a fact about a version and return its id. Only the operator speaks for third parties."""
    tool, number = await _existing(version, scales)
    fact = make(tool, number, scales.clock.now())
    if isinstance(fact, Audit) and fact.level is AuditLevel.THIRD_PARTY and not is_operator(by):
        raise third_party_is_attested_by_the_operator()
    fact_id = await scales.book.record(fact)
    await rescore(tool, scales)
    return fact_id


async def _existing(version: str, scales: Scales) -> tuple[ToolName, str]:
    tool, number = split_version_name(version)
    named(tool, number, await scales.catalogue.heads([tool]))
    return tool, number
