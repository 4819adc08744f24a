"""RegisterTool: admits a manifest and stores it as an immutable version."""

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
    no_executor,
    tool_is_revoked,
    version_conflict,
)
from services.registry.domain.lifecycle.lifecycle import starting_states
from services.registry.domain.model import Actor, Standing, ToolVersion, VersionHead
from services.registry.domain.ports import Catalogue, Ledger, SchemaChecker, Wakeup
from services.registry.domain.publishing.examine_candidate import (
    Examination,
    examine_candidate,
    examine_names,
    line_violations,
    neighbours_of,
)
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.scan.policy import DEFAULT_POLICY, ScanPolicy
from services.registry.domain.publishing.scan.scan import NameScanResult
from services.registry.domain.runners.need import need_of
from services.registry.domain.runners.ports import Announcements

RESERVED = frozenset({DEFAULT_NAMESPACE})
MAY_USE_RESERVED = frozenset({"executor", OPERATOR})


@dataclass(frozen=True, slots=True)
class Registration:
    """The stored version, whether this call created it, and its scan warnings."""

    version: ToolVersion
    created: bool
    warnings: Sequence[Violation] = ()


async def register_tool(
    manifest: Manifest,
    registrar: Actor,
    *,
    catalogue: Catalogue,
    schemas: SchemaChecker,
    runners: Announcements,
    wakeup: Wakeup,
    clock: Clock,
    draft: bool = False,
    imported: bool = False,
    scan_policy: ScanPolicy = DEFAULT_POLICY,
) -> Registration:
    """Store the manifest unless the same content exists. Of concurrent calls with the same content exactly one stores
    it. `imported` is for manifests that the registry itself made of an upstream's definition."""
    if manifest.name.namespace in RESERVED and registrar.peer not in MAY_USE_RESERVED:
        raise namespace_reserved(manifest.name.namespace)
    # Before admission, because an admitted version stays registered even after the rules have become stricter.
    heads = await catalogue.heads([manifest.name])
    head = _find_registered(manifest, heads)
    if head is None:
        examination = await examine_candidate(
            manifest, heads, registrar, catalogue=catalogue, schemas=schemas, policy=scan_policy, imported=imported
        )
        await _refuse_unrunnable(manifest, examination, runners)
        added, head = await _add(
            manifest, registrar, catalogue, clock, schemas, examination, draft=draft, scan_policy=scan_policy
        )
        if added is not None:
            wakeup.notify()
            return added
    [stored] = await catalogue.with_manifests([head])
    return Registration(stored, False, await catalogue.warnings(head))


async def _refuse_unrunnable(manifest: Manifest, examination: Examination, runners: Announcements) -> None:
    """Refuse a manifest that violates a rule or that no executor can run. While no executor is announced, that is
    not known."""
    announced = await runners.read()
    missing = announced.missing(need_of(manifest))
    known = (missing,) if missing and announced.announcements else ()
    if examination.violations or known:
        raise manifest_invalid((*examination.violations, *known))
    if missing:
        raise no_executor()


async def _add(
    manifest: Manifest,
    registrar: Actor,
    catalogue: Catalogue,
    clock: Clock,
    schemas: SchemaChecker,
    examination: Examination,
    *,
    draft: bool,
    scan_policy: ScanPolicy,
) -> tuple[Registration | None, VersionHead]:
    """Store the version unless another replica did. Return the registration if this call stored it, and the stored
    head."""
    async with catalogue.writing() as ledger:
        heads = await ledger.heads(manifest.name)
        head = _find_registered(manifest, heads)
        if head is not None:
            return None, head
        await _refuse_taken_names(manifest, registrar, ledger)
        await _refuse_new_neighbours(manifest, heads, examination, ledger, schemas)
        names = await _refuse_new_resemblances(manifest, registrar, heads, examination, ledger, scan_policy)
        version = await _store(manifest, registrar, heads, ledger, clock, draft=draft)
        warnings = (*examination.text_warnings, *names.warned)
        await ledger.add_warnings(version.head, warnings)
        await ledger.add_alike_pairs(names.pairs)
    return Registration(version, True, warnings), version.head


async def _refuse_new_neighbours(
    manifest: Manifest, heads: Sequence[VersionHead], examination: Examination, ledger: Ledger, schemas: SchemaChecker
) -> None:
    """Check versions that were registered since the examination and are closer neighbours."""
    neighbours = neighbours_of(manifest, heads)
    if neighbours.digests == examination.neighbours.digests:
        return
    violations = await line_violations(manifest, neighbours, ledger.manifest, schemas)
    if violations:
        raise manifest_invalid(violations)


async def _refuse_new_resemblances(
    manifest: Manifest,
    registrar: Actor,
    heads: Sequence[VersionHead],
    examination: Examination,
    ledger: Ledger,
    policy: ScanPolicy,
) -> NameScanResult:
    """Compare the names with those that were registered since the examination: two that are alike may come at once."""
    namespace = await ledger.namespace(manifest.name.namespace)
    owner, since = namespace.owner if namespace else None, examination.last_change
    names = await examine_names(manifest, heads, owner, registrar, names=ledger, policy=policy, since=since)
    if names.blocked:
        raise manifest_invalid(names.blocked)
    return examination.names.joined(names)


def _find_registered(manifest: Manifest, heads: Sequence[VersionHead]) -> VersionHead | None:
    """Return the stored version with this number. Build metadata does not distinguish versions, because a constraint of
    `1.0.0` could not tell them apart."""
    for head in heads:
        if head.version == manifest.version:
            if head.digest != manifest.digest:
                raise version_conflict(head)
            return head
    return None


async def _refuse_taken_names(manifest: Manifest, registrar: Actor, ledger: Ledger) -> None:
    """Check the names against the namespace owner, the provider and existing tools. The provider is only a claim of the
    manifest, so the authenticated owner decides."""
    namespace = await ledger.namespace(manifest.name.namespace)
    wanted = [manifest.name, *manifest.aliases]
    if namespace is None:
        # A reference without a namespace means `core`, so a name in `core` is either a tool or a namespace.
        wanted.append(ToolName(DEFAULT_NAMESPACE, manifest.name.namespace))
    elif namespace.namespace not in RESERVED and not namespace.may_publish(registrar):
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
    # Read under the lock, so that later changes do not have earlier times on one machine.
    now = clock.now()
    *beneath, state = starting_states(manifest, draft=draft)
    head = VersionHead(
        tool=manifest.name,
        version=manifest.version,
        digest=manifest.digest,
        size=len(manifest.payload),
        create_time=now,
        registered_by=registrar.recorded_name,
        standing=Standing(state, now, await ledger.next_sequence(), beneath=tuple(beneath)),
    )
    version = ToolVersion(head, manifest)
    tool = with_version(await ledger.tool(manifest.name), heads, version)
    await ledger.add(version, tool, registered_through=registrar.peer)
    return version
