"""CheckCompatibility: lists the changes of a candidate and the version bump that they require."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from libs.common.semver import Version
from libs.common.tool_names import split_version_name
from services.registry.domain.compatibility.comparison import compare
from services.registry.domain.compatibility.differences import Difference
from services.registry.domain.compatibility.version_bumps import Bump, bump_version
from services.registry.domain.errors import manifest_invalid, tool_not_found, version_not_found
from services.registry.domain.model import VersionHead
from services.registry.domain.ports import Catalogue, SchemaChecker
from services.registry.domain.publishing.examine_candidate import line_violations, neighbours_of
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.rules.form import check_version
from services.registry.domain.publishing.rules.schemas import check_schemas

MOST_FINDINGS = 200


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The result. Without a baseline there is no comparison and no bump."""

    baseline: VersionHead | None
    differences: tuple[Difference, ...]
    bump: Bump | None
    smallest_version: str
    number_is_legal: bool


async def check_compatibility(
    candidate: Manifest | str, baseline: str, *, catalogue: Catalogue, schemas: SchemaChecker
) -> Compatibility:
    """Compare a manifest, or the version with this resource name, with a baseline or with the previous release."""
    manifest = await _read_stored(candidate, catalogue) if isinstance(candidate, str) else candidate
    await asyncio.to_thread(_refuse_invalid, manifest, schemas)
    heads = [head for head in await catalogue.heads([manifest.name]) if head.version != manifest.version]
    neighbours = neighbours_of(manifest, heads)
    chosen = await _find_version(baseline, catalogue) if baseline else neighbours.below
    legal = not await line_violations(manifest, neighbours, lambda head: _read_manifest(head, catalogue), schemas)
    if chosen is None:
        return Compatibility(None, (), None, "", legal)
    comparison = await asyncio.to_thread(compare, await _read_manifest(chosen, catalogue), manifest, schemas)
    return Compatibility(
        baseline=chosen,
        differences=comparison.differences[:MOST_FINDINGS],
        bump=comparison.bump,
        smallest_version=str(bump_version(chosen.version, comparison.bump)),
        number_is_legal=legal,
    )


def _refuse_invalid(manifest: Manifest, schemas: SchemaChecker) -> None:
    violations = [*check_version(manifest), *check_schemas(manifest, schemas)]
    if violations:
        raise manifest_invalid(violations)


async def _read_stored(name: str, catalogue: Catalogue) -> Manifest:
    return await _read_manifest(await _find_version(name, catalogue), catalogue)


async def _find_version(name: str, catalogue: Catalogue) -> VersionHead:
    tool, number = split_version_name(name)
    heads = await catalogue.heads([tool])
    if not heads:
        raise tool_not_found(tool)
    version = Version.parse(number)
    head = next((candidate for candidate in heads if candidate.version == version), None)
    if head is None:
        raise version_not_found(tool, number)
    return head


async def _read_manifest(head: VersionHead, catalogue: Catalogue) -> Manifest:
    [version] = await catalogue.with_manifests([head])
    if version.manifest is None:
        raise ValueError("a version was read without its manifest")
    return version.manifest
