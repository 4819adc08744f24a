"""Checks a candidate manifest: admission rules, content scan, and compatibility with neighbouring releases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from libs.common.errors import Violation
from libs.common.tool_names import ToolName
from services.registry.domain.compatibility.comparison import Comparison, compare
from services.registry.domain.compatibility.differences import ChangeKind
from services.registry.domain.compatibility.version_bumps import (
    allowed_bump,
    bump_version,
    next_release,
    previous_release,
)
from services.registry.domain.model import Actor, VersionHead
from services.registry.domain.ports import Catalogue, KnownNames, SchemaChecker
from services.registry.domain.publishing.admission import violations
from services.registry.domain.publishing.examine_references import examine_references
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.rules.schemas import check_schemas
from services.registry.domain.publishing.scan.lookalikes import CandidateNames
from services.registry.domain.publishing.scan.policy import ScanPolicy
from services.registry.domain.publishing.scan.scan import NameScanResult, scan_names, scan_texts

ManifestReader: TypeAlias = Callable[[VersionHead], Awaitable[Manifest]]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The next lower and next higher release of the candidate's line."""

    below: VersionHead | None
    above: VersionHead | None

    @property
    def digests(self) -> tuple[str, ...]:
        """Identify the neighbours; a digest covers the version number."""
        return tuple(head.digest if head else "" for head in (self.below, self.above))


@dataclass(frozen=True, slots=True)
class Examination:
    """The violations, the warnings about texts, what the names resemble, and the neighbours that the candidate was
    compared with."""

    violations: tuple[Violation, ...]
    text_warnings: tuple[Violation, ...]
    neighbours: Neighbours
    names: NameScanResult = NameScanResult()
    last_change: int = 0
    """The last change before the names were compared."""


def neighbours_of(manifest: Manifest, heads: Sequence[VersionHead]) -> Neighbours:
    """Return the neighbours of a candidate among the versions of its tool."""
    return Neighbours(previous_release(manifest.version, heads), next_release(manifest.version, heads))


async def examine_candidate(
    manifest: Manifest,
    heads: Sequence[VersionHead],
    registrar: Actor,
    *,
    catalogue: Catalogue,
    schemas: SchemaChecker,
    policy: ScanPolicy,
    beside: Container[ToolName] = (),
    imported: bool = False,
) -> Examination:
    """Check a candidate against the versions of its tool. Reports all findings and decides nothing. `beside` are the
    tools that are registered with it."""
    last_change = await catalogue.last_change()
    owner = await catalogue.owner_of(manifest.name.namespace)
    names = await examine_names(manifest, heads, owner, registrar, names=catalogue, policy=policy)
    # Off the event loop, because a large or hostile manifest takes a while.
    rule_violations = await asyncio.to_thread(violations, manifest, schemas, imported=imported)
    texts = await asyncio.to_thread(scan_texts, manifest, policy)
    blocked = (*texts.blocked, *names.blocked)
    if any(violation.rule.startswith("version.") for violation in rule_violations):
        return Examination((*rule_violations, *blocked), texts.warned, Neighbours(None, None), names, last_change)
    references = await examine_references(manifest, catalogue, beside=beside, imported=imported)
    blocked, warned = (*blocked, *references.blocked), (*texts.warned, *references.warned)
    neighbours = neighbours_of(manifest, heads)

    async def read(head: VersionHead) -> Manifest:
        [version] = await catalogue.with_manifests([head])
        if version.manifest is None:
            raise ValueError("a version was read without its manifest")
        return version.manifest

    line = await line_violations(manifest, neighbours, read, schemas)
    return Examination((*rule_violations, *blocked, *line), warned, neighbours, names, last_change)


async def examine_names(
    manifest: Manifest,
    heads: Sequence[VersionHead],
    owner: str | None,
    registrar: Actor,
    *,
    names: KnownNames,
    policy: ScanPolicy,
    since: int = 0,
) -> NameScanResult:
    """Compare the names that the candidate adds with all others, or with those that changed since a change number."""
    own = owner or registrar.recorded_name
    new = await _new_names(manifest, heads, names)
    if not new:
        return NameScanResult()
    candidate = CandidateNames(manifest.name, tuple(new), manifest.provider, own)
    known = await names.similar_names(candidate, since=since)
    return await asyncio.to_thread(scan_names, manifest, known, policy, own)


async def _new_names(manifest: Manifest, heads: Sequence[VersionHead], names: KnownNames) -> Sequence[ToolName]:
    """Return the names that the candidate adds. Existing names of its tool were checked before."""
    if not heads:
        return [manifest.name, *manifest.aliases]
    tool = await names.tool(manifest.name) if manifest.aliases else None
    return [alias for alias in manifest.aliases if tool is None or alias.tool_id not in tool.aliases]


async def line_violations(
    manifest: Manifest, neighbours: Neighbours, read: ManifestReader, schemas: SchemaChecker
) -> list[Violation]:
    """Return why the candidate's version number is not legal: callers of the lower neighbour would get the candidate,
    and callers of the candidate get the higher one."""
    if neighbours.below is None and neighbours.above is None:
        return []
    if await asyncio.to_thread(lambda: any(check_schemas(manifest, schemas))):
        return []
    results: list[Violation] = []
    if neighbours.below is not None:
        stored = await read(neighbours.below)
        comparison = await asyncio.to_thread(compare, stored, manifest, schemas)
        results += _too_small(comparison, neighbours.below, manifest)
    if neighbours.above is not None:
        stored = await read(neighbours.above)
        comparison = await asyncio.to_thread(compare, manifest, stored, schemas)
        if comparison.bump > allowed_bump(manifest.version, neighbours.above.version):
            words = f"callers would get {neighbours.above.version}, which is not compatible with it"
            results += [Violation("manifest.version", "version.successor", words), *_reasons(comparison)]
    return results


def _too_small(comparison: Comparison, below: VersionHead, manifest: Manifest) -> list[Violation]:
    if comparison.bump <= allowed_bump(below.version, manifest.version):
        return []
    needed = bump_version(below.version, comparison.bump)
    words = f"is too small a step from {below.version}: these changes need at least {needed}"
    return [Violation("manifest.version", "version.bump", words), *_reasons(comparison)]


def _reasons(comparison: Comparison) -> list[Violation]:
    """Return the breaking differences as violations, or the additive ones if nothing breaks."""
    breaks = any(d.kind is ChangeKind.BREAKING for d in comparison.differences)
    kind = ChangeKind.BREAKING if breaks else ChangeKind.ADDITIVE
    return [Violation(d.path, f"compatibility.{d.rule}", d.message) for d in comparison.differences if d.kind is kind]
