"""RegisterTool: from a manifest to an immutable version, or to every reason why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.auth.peers import OPERATOR
from libs.common.errors import Violation
from libs.common.runtime.clock import Clock
from libs.common.tool_names import DEFAULT_NAMESPACE, ToolName
from services.registry.domain.catalog.tool import with_version
from services.registry.domain.errors import (
    alias_is_a_namespace,
    manifest_invalid,
    name_taken,
    namespace_not_owned,
    namespace_reserved,
    namespace_taken,
    tool_is_revoked,
    version_conflict,
)
from services.registry.domain.lifecycle.lifecycle import starting_states
from services.registry.domain.model import Actor, Standing, ToolVersion, VersionHead
from services.registry.domain.ports import Catalogue, Ledger, SchemaChecker, Wakeup
from services.registry.domain.publishing.examine_candidate import Examination, examine, line_violations, neighbours_of
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.scan.policy import DEFAULT_POLICY, ScanPolicy

RESERVED = frozenset({DEFAULT_NAMESPACE})
MAY_USE_RESERVED = frozenset({"executor", OPERATOR})


@dataclass(frozen=True, slots=True)
class Registration:
    """The version as stored, whether this call stored it, and what the scan let pass when it was."""

    version: ToolVersion
    created: bool
    warnings: Sequence[Violation] = ()


async def register_tool(
    manifest: Manifest,
    registrar: Actor,
    *,
    catalogue: Catalogue,
    schemas: SchemaChecker,
    wakeup: Wakeup,
    clock: Clock,
    draft: bool = False,
    scan_policy: ScanPolicy = DEFAULT_POLICY,
) -> Registration:
    """Store the manifest unless the same content is there already. Of any number of concurrent calls with the same
    content exactly one stores it."""
    if manifest.name.namespace in RESERVED and registrar.peer not in MAY_USE_RESERVED:
        raise namespace_reserved(manifest.name.namespace)
    # Before admission: what was admitted once stays registered, also after the conditions have become stricter.
    heads = await catalogue.heads([manifest.name])
    head = _same(manifest, heads)
    if head is None:
        examination = await examine(
            manifest, heads, registrar, catalogue=catalogue, schemas=schemas, policy=scan_policy
        )
        if examination.violations:
            raise manifest_invalid(examination.violations)
        added, head = await _add(manifest, registrar, catalogue, clock, schemas, examination, draft=draft)
        if added is not None:
            wakeup.notify()
            return Registration(added, True, examination.warnings)
    [stored] = await catalogue.with_manifests([head])
    return Registration(stored, False, await catalogue.warnings(head))


async def _add(
    manifest: Manifest,
    registrar: Actor,
    catalogue: Catalogue,
    clock: Clock,
    schemas: SchemaChecker,
    examination: Examination,
    *,
    draft: bool,
) -> tuple[ToolVersion | None, VersionHead]:
    """Store the version unless another replica was faster; return what this call stored, and what is stored now."""
    async with catalogue.writing() as ledger:
        heads = await ledger.heads(manifest.name)
        head = _same(manifest, heads)
        if head is not None:
            return None, head
        await _refuse_taken_names(manifest, registrar, ledger)
        await _refuse_new_neighbours(manifest, heads, examination, ledger, schemas)
        version = await _store(manifest, registrar, heads, ledger, clock, draft=draft)
        await ledger.add_warnings(version.head, examination.warnings)
    return version, version.head


async def _refuse_new_neighbours(
    manifest: Manifest, heads: Sequence[VersionHead], examination: Examination, ledger: Ledger, schemas: SchemaChecker
) -> None:
    """What was registered since the examination may stand closer; then the number is held against that."""
    neighbours = neighbours_of(manifest, heads)
    if neighbours.digests == examination.neighbours.digests:
        return
    found = await line_violations(manifest, neighbours, ledger.manifest, schemas)
    if found:
        raise manifest_invalid(found)


def _same(manifest: Manifest, heads: Sequence[VersionHead]) -> VersionHead | None:
    """Return the stored version of this number. Versions that differ only in their build have the same number: a
    caller who pins `1.0.0` could not tell them apart."""
    for head in heads:
        if head.version == manifest.version:
            if head.digest != manifest.digest:
                raise version_conflict(head)
            return head
    return None


async def _refuse_taken_names(manifest: Manifest, registrar: Actor, ledger: Ledger) -> None:
    """A provider is only what a manifest says; who registers is known. So the owner decides, and the provider must be
    the same as before."""
    namespace = await ledger.namespace(manifest.name.namespace)
    wanted = [manifest.name, *manifest.aliases]
    if namespace is None:
        # A reference without a namespace means `core`: there, a word is a tool or it is a namespace.
        wanted.append(ToolName(DEFAULT_NAMESPACE, manifest.name.namespace))
    elif namespace.namespace not in RESERVED and not namespace.lets_publish(registrar):
        raise namespace_not_owned(namespace.namespace, namespace.owner)
    elif namespace.provider != manifest.provider:
        raise namespace_taken(namespace.namespace, namespace.provider)
    if await ledger.revoked(manifest.name):
        raise tool_is_revoked(manifest.name)
    for name, holder in (await ledger.holders(wanted)).items():
        if holder != manifest.name:
            raise name_taken(name, holder)
    await _refuse_namespaces(manifest, ledger)


async def _refuse_namespaces(manifest: Manifest, ledger: Ledger) -> None:
    spelled = await ledger.namespaces_among(alias.tool_id for alias in manifest.aliases)
    for alias in manifest.aliases:
        if alias.tool_id in spelled - {manifest.name.namespace}:
            raise alias_is_a_namespace(alias)


async def _store(
    manifest: Manifest,
    registrar: Actor,
    heads: Sequence[VersionHead],
    ledger: Ledger,
    clock: Clock,
    *,
    draft: bool,
) -> ToolVersion:
    # Read while the registry is held, so that later changes never carry earlier times on one machine.
    now = clock.now()
    *beneath, state = starting_states(manifest, draft=draft)
    head = VersionHead(
        tool=manifest.name,
        version=manifest.version,
        digest=manifest.digest,
        size=len(manifest.payload),
        create_time=now,
        registered_by=registrar.recorded,
        standing=Standing(state, now, await ledger.next_sequence(), beneath=tuple(beneath)),
    )
    version = ToolVersion(head, manifest)
    tool = with_version(await ledger.tool(manifest.name), heads, version)
    await ledger.add(version, tool, registered_through=registrar.peer)
    return version
