"""RegisterTool: admits a manifest and stores it as an immutable version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
    """The stored version, whether this call created it, its scan warnings, and what it stored beside."""

    version: ToolVersion
    created: bool
    warnings: Sequence[Violation] = ()
    beside: Sequence[ToolVersion] = ()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A manifest that is not registered yet, its place in the request, and its examination."""

    manifest: Manifest
    field: str
    examination: Examination

    def violations(self) -> Iterator[Violation]:
        """Yield the violations, with paths into the request."""
        for each in self.examination.violations:
            yield replace(each, path=self.field + each.path.removeprefix("manifest"))


async def register_tool(
    manifest: Manifest,
    registrar: Actor,
    *,
    catalogue: Catalogue,
    schemas: SchemaChecker,
    runners: Announcements,
    wakeup: Wakeup,
    clock: Clock,
    beside: Sequence[Manifest] = (),
    draft: bool = False,
    imported: bool = False,
    scan_policy: ScanPolicy = DEFAULT_POLICY,
) -> Registration:
    """Store the manifest unless the same content exists, and with it those `beside` it: all of them or none. Of
    concurrent calls with the same content exactly one stores it. `imported` is for manifests that the registry itself
    made of an upstream's definition."""
    if manifest.name.namespace in RESERVED and registrar.peer not in MAY_USE_RESERVED:
        raise namespace_reserved(manifest.name.namespace)
    together = {"manifest": manifest, **{f"beside[{index}]": each for index, each in enumerate(beside)}}
    _refuse_unrelated(together)
    heads_of = {field: await catalogue.heads([each.name]) for field, each in together.items()}
    # Before admission, because an admitted version stays registered even after the rules have become stricter.
    unknown = {field: each for field, each in together.items() if _find_registered(each, heads_of[field]) is None}
    names = frozenset(each.name for each in unknown.values())
    new = list[_Candidate]()
    for field, each in unknown.items():
        examination = await examine_candidate(
            each,
            heads_of[field],
            registrar,
            catalogue=catalogue,
            schemas=schemas,
            policy=scan_policy,
            beside=names,
            imported=imported,
        )
        new.append(_Candidate(each, field, examination))
    await _refuse_unrunnable(new, runners)
    added = await _add_all(new, registrar, catalogue, clock, schemas, draft=draft, scan_policy=scan_policy)
    if added:
        wakeup.notify()
    own = next((each for each in added if each.version.head.tool == manifest.name), None)
    others = [each.version for each in added if each is not own]
    if own is not None:
        return replace(own, beside=others)
    head = _find_registered(manifest, await catalogue.heads([manifest.name]))
    if head is None:
        raise ValueError("a registered version is gone")
    [stored] = await catalogue.with_manifests([head])
    return Registration(stored, False, await catalogue.warnings(head), others)


def _refuse_unrelated(together: Mapping[str, Manifest]) -> None:
    """Refuse manifests of other namespaces, and several of one tool, in one registration."""
    own, seen, refused = together["manifest"].name, set[ToolName](), list[Violation]()
    for field, each in together.items():
        if each.name.namespace != own.namespace:
            refused.append(Violation(f"{field}.namespace", "beside.namespace", "is not that of `manifest`"))
        if each.name in seen:
            refused.append(Violation(f"{field}.tool_id", "beside.distinct", "is in this registration already"))
        seen.add(each.name)
    if refused:
        raise manifest_invalid(refused)


async def _refuse_unrunnable(new: Sequence[_Candidate], runners: Announcements) -> None:
    """Refuse manifests that violate a rule or that no executor can run. While no executor is announced, that is not
    known."""
    if not new:
        return
    announced = await runners.read()
    violations, unrunnable = list[Violation](), False
    for candidate in new:
        missing = announced.missing(need_of(candidate.manifest))
        unrunnable = unrunnable or bool(missing)
        violations += candidate.violations()
        if missing and announced.announcements:
            violations.append(replace(missing, path=candidate.field + missing.path.removeprefix("manifest")))
    if violations:
        raise manifest_invalid(violations)
    if unrunnable:
        raise no_executor()


async def _add_all(
    new: Sequence[_Candidate],
    registrar: Actor,
    catalogue: Catalogue,
    clock: Clock,
    schemas: SchemaChecker,
    *,
    draft: bool,
    scan_policy: ScanPolicy,
) -> list[Registration]:
    """Store the versions in one transaction, but those that another replica stored. Return what this call stored."""
    if not new:
        return []
    async with catalogue.writing() as ledger:
        added = [
            await _add(each, registrar, ledger, clock, schemas, draft=draft, scan_policy=scan_policy) for each in new
        ]
    return [each for each in added if each is not None]


async def _add(
    candidate: _Candidate,
    registrar: Actor,
    ledger: Ledger,
    clock: Clock,
    schemas: SchemaChecker,
    *,
    draft: bool,
    scan_policy: ScanPolicy,
) -> Registration | None:
    """Store a version, and return its registration; None if another replica stored it."""
    manifest, examination = candidate.manifest, candidate.examination
    heads = await ledger.heads(manifest.name)
    if _find_registered(manifest, heads) is not None:
        return None
    await _refuse_taken_names(manifest, registrar, ledger)
    await _refuse_new_neighbours(manifest, heads, examination, ledger, schemas)
    names = await _refuse_new_resemblances(manifest, registrar, heads, examination, ledger, scan_policy)
    version = await _store(manifest, registrar, heads, ledger, clock, draft=draft)
    warnings = (*examination.text_warnings, *names.warned)
    await ledger.add_warnings(version.head, warnings)
    await ledger.add_alike_pairs(names.pairs)
    return Registration(version, True, warnings)


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
