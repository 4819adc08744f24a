"""RegisterTool: from a manifest to an immutable version, or to every reason why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.auth.peers import OPERATOR
from libs.common.clock import Clock
from libs.common.names import DEFAULT_NAMESPACE
from services.registry.domain.admission import admit
from services.registry.domain.errors import name_taken, namespace_reserved, namespace_taken, version_conflict
from services.registry.domain.manifest import Manifest
from services.registry.domain.model import LifecycleState, Registrar, Standing, ToolVersion, VersionHead
from services.registry.domain.ports import Bell, Catalogue, Ledger, SchemaChecker
from services.registry.domain.tool import with_version

RESERVED = frozenset({DEFAULT_NAMESPACE})
MAY_USE_RESERVED = frozenset({"executor", OPERATOR})


@dataclass(frozen=True, slots=True)
class Registration:
    """The version as stored, and whether this call stored it."""

    version: ToolVersion
    created: bool


async def register_tool(
    manifest: Manifest,
    registrar: Registrar,
    *,
    catalogue: Catalogue,
    schemas: SchemaChecker,
    bell: Bell,
    clock: Clock,
) -> Registration:
    """Store the manifest unless the same content is there already. Of any number of concurrent calls with the same
    content exactly one stores it."""
    if manifest.name.namespace in RESERVED and registrar.peer not in MAY_USE_RESERVED:
        raise namespace_reserved(manifest.name.namespace)
    # Before admission: what was admitted once stays registered, also after the conditions have become stricter.
    head = _same(manifest, await catalogue.heads([manifest.name]))
    if head is None:
        admit(manifest, schemas)
        added, head = await _add(manifest, registrar, catalogue, clock)
        if added is not None:
            bell.ring()
            return Registration(added, created=True)
    [stored] = await catalogue.with_manifests([head])
    return Registration(stored, created=False)


async def _add(
    manifest: Manifest, registrar: Registrar, catalogue: Catalogue, clock: Clock
) -> tuple[ToolVersion | None, VersionHead]:
    """Store the version unless another replica was faster; return what this call stored, and what is stored now."""
    async with catalogue.writing() as ledger:
        heads = await ledger.heads(manifest.name)
        head = _same(manifest, heads)
        if head is not None:
            return None, head
        await _refuse_taken_names(manifest, ledger)
        version = await _store(manifest, registrar, heads, ledger, clock)
    return version, version.head


def _same(manifest: Manifest, heads: Sequence[VersionHead]) -> VersionHead | None:
    """Return the stored version of this number. Versions that differ only in their build have the same number: a
    caller who pins `1.0.0` could not tell them apart."""
    for head in heads:
        if head.version == manifest.version:
            if head.digest != manifest.digest:
                raise version_conflict(head)
            return head
    return None


async def _refuse_taken_names(manifest: Manifest, ledger: Ledger) -> None:
    namespace = manifest.name.namespace
    provider = await ledger.namespace_provider(namespace)
    if provider not in (None, manifest.provider):
        raise namespace_taken(namespace, provider)
    for name, holder in (await ledger.holders([manifest.name, *manifest.aliases])).items():
        if holder != manifest.name:
            raise name_taken(name, holder)


async def _store(
    manifest: Manifest, registrar: Registrar, heads: Sequence[VersionHead], ledger: Ledger, clock: Clock
) -> ToolVersion:
    # Read while the registry is held, so that later changes never carry earlier times on one machine.
    now = clock.now()
    head = VersionHead(
        tool=manifest.name,
        version=manifest.version,
        digest=manifest.digest,
        size=len(manifest.payload),
        create_time=now,
        registered_by=registrar.recorded,
        standing=Standing(LifecycleState.AVAILABLE, now, await ledger.next_sequence()),
    )
    version = ToolVersion(head, manifest)
    tool = with_version(await ledger.tool(manifest.name), heads, version)
    await ledger.add(version, tool, registered_through=registrar.peer)
    return version
