"""GetTrustScore: reads the facts about a tool and computes its score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from libs.common.errors import MeshError
from libs.common.runtime.clock import Clock
from libs.common.tool_names import ToolName
from services.registry.domain.catalog.tool import default_version
from services.registry.domain.errors import tool_not_found
from services.registry.domain.model import ToolVersion, VersionHead
from services.registry.domain.ports import Catalogue
from services.registry.domain.publishing.manifest import Manifest, seconds
from services.registry.domain.publishing.rules.timing import CLASS_SECONDS
from services.registry.domain.trust.facts import Facts
from services.registry.domain.trust.ports import TrustStore
from services.registry.domain.trust.score import Score, score
from services.registry.domain.trust.usage import Usage, UsageReader

# The period of calls that count.
USAGE_WINDOW = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class TrustScore:
    """The score of a tool with its facts and the version they are about."""

    tool: ToolName
    version: ToolVersion
    facts: Facts
    score: Score


@dataclass(frozen=True, slots=True)
class TrustScorer:
    """Computes trust scores from stored facts and usage."""

    catalogue: Catalogue
    store: TrustStore
    usage: UsageReader
    clock: Clock

    async def score(self, reference: ToolName) -> TrustScore:
        """Compute the score of the tool with this name or alias."""
        tool = await self.catalogue.tool(reference)
        if tool is None:
            raise tool_not_found(reference)
        [trust_score] = await self.score_all([tool.name])
        return trust_score

    async def score_all(self, tools: Sequence[ToolName]) -> list[TrustScore]:
        """Compute the scores of tools as of now, up to the batch limit of the usage service. Facts count for the
        default version only, because an audit does not cover later versions. Unknown usage is missing, not zero."""
        versions: defaultdict[ToolName, list[VersionHead]] = defaultdict(list)
        for head in await self.catalogue.heads(tools):
            versions[head.tool].append(head)
        shown = await self.catalogue.with_manifests([default_version(versions[tool]) for tool in tools])
        now = self.clock.now()
        usages = await self._usages(shown, now)
        facts_read = await self.store.facts([version.head for version in shown])
        return [
            _trust_score(version, replace(facts, usage=usages.get(version.head.tool)), now)
            for version, facts in zip(shown, facts_read, strict=True)
        ]

    async def _usages(self, shown: Sequence[ToolVersion], now: datetime) -> Mapping[ToolName, Usage]:
        declared = {version.head.tool.resource: declared_time(version.manifest) for version in shown}
        try:
            usages = await self.usage.usages(declared, now - USAGE_WINDOW) if declared else {}
        except MeshError:
            return {}
        return {version.head.tool: usages[version.head.tool.resource] for version in shown}


def _trust_score(version: ToolVersion, facts: Facts, now: datetime) -> TrustScore:
    return TrustScore(version.head.tool, version, facts, score(facts, now))


def declared_time(manifest: Manifest | None) -> timedelta | None:
    """Return the declared time of a tool: the promised p95, else its own default timeout, else that of its class."""
    if manifest is None:
        return None
    execution = manifest.execution
    timeout = manifest.part("sla").get("latency_p95") or execution.get("timeout_default")
    return timedelta(seconds=float(seconds(timeout) if timeout else CLASS_SECONDS[execution["timeout_class"]]))
