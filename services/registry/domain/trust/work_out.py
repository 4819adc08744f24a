"""GetTrustScore: gathering the facts about a tool, and working its score out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from libs.common.clock import Clock
from libs.common.errors import MeshError
from libs.common.names import ToolName
from services.registry.domain.conjuncts.timing import CLASS_SECONDS
from services.registry.domain.errors import tool_not_found
from services.registry.domain.manifest import Manifest, seconds
from services.registry.domain.model import Tool, ToolVersion
from services.registry.domain.ports import Catalogue
from services.registry.domain.tool import face_of
from services.registry.domain.trust.facts import Facts
from services.registry.domain.trust.ports import TrustBook
from services.registry.domain.trust.score import Score, score
from services.registry.domain.usage import Usage, UsageReader

# How far back calls count.
USAGE_WINDOW = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Weighed:
    """A tool, the version its facts are looked up for, the facts, and the score."""

    tool: Tool
    version: ToolVersion
    facts: Facts
    score: Score


@dataclass(frozen=True, slots=True)
class Scales:
    """What it takes to work a score out."""

    catalogue: Catalogue
    book: TrustBook
    usage: UsageReader
    clock: Clock

    async def weigh(self, reference: ToolName) -> Weighed:
        """Work the score of a tool out from the facts as of now. Facts about a version count for the one that the tool
        shows: what was audited is not what comes after it. Usage that cannot be read is missing, not zero."""
        tool = await self.catalogue.tool(reference)
        if tool is None:
            raise tool_not_found(reference)
        head = face_of(await self.catalogue.heads([tool.name]))
        [version] = await self.catalogue.with_manifests([head])
        now = self.clock.now()
        facts = await self._facts(tool, version, now)
        return Weighed(tool, version, facts, score(facts, now))

    async def _facts(self, tool: Tool, version: ToolVersion, now: datetime) -> Facts:
        number = str(version.head.version)
        return Facts(
            admitted=version.head.create_time,
            usage=await self._usage(tool, version, now),
            ratings=await self.book.ratings(tool.name),
            audits=await self.book.audits(tool.name, number),
            verifications=await self.book.verifications(tool.name, number),
            others=await self.book.other_tools(besides=tool.name),
        )

    async def _usage(self, tool: Tool, version: ToolVersion, now: datetime) -> Usage | None:
        try:
            return await self.usage.usage(tool.name.resource, now - USAGE_WINDOW, declared_time(version.manifest))
        except MeshError:
            return None


def declared_time(manifest: Manifest | None) -> timedelta | None:
    """Return the time that a tool promises to keep: its own usual limit, else that of its class."""
    if manifest is None:
        return None
    execution = manifest.execution
    said = execution.get("timeout_default")
    return timedelta(seconds=float(seconds(said) if said else CLASS_SECONDS[execution["timeout_class"]]))
