"""Publishes the tools of upstreams: each definition is one version, and a changed one is the next."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from libs.common.semver import Version
from libs.common.tool_names import split_version_name
from services.registry.domain.compatibility.comparison import compare
from services.registry.domain.compatibility.version_bumps import Bump, bump_version
from services.registry.domain.lifecycle.change_state import change_version
from services.registry.domain.lifecycle.lifecycle import Verb
from services.registry.domain.lifecycle.transitions import ChangeRequest
from services.registry.domain.model import Actor, LifecycleState, VersionHead
from services.registry.domain.ports import Catalogue, SchemaChecker, Wakeup
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.register_tool import register_tool
from services.registry.domain.publishing.rules.schemas import check_schemas
from services.registry.domain.publishing.scan.policy import ScanPolicy
from services.registry.domain.runners.ports import Announcements

FIRST = Version(1, 0, 0)
CHANGED = "the upstream changed the definition of the tool"
MISSING = "the upstream no longer offers the tool"
REMOVED = "the upstream was removed"
# How each of these reasons is applied and lifted. A state with another reason is not the upstream's to lift.
_APPLIED = {CHANGED: Verb.QUARANTINE, MISSING: Verb.DISABLE, REMOVED: Verb.DISABLE}
_LIFTED = {LifecycleState.QUARANTINED: Verb.RELEASE, LifecycleState.DISABLED: Verb.ENABLE}


@dataclass(frozen=True, slots=True)
class Publisher:
    """Registers versions and changes their state, on behalf of the operator that added the upstream."""

    catalogue: Catalogue
    schemas: SchemaChecker
    runners: Announcements
    wakeup: Wakeup
    clock: Clock
    scan_policy: ScanPolicy

    async def publish(self, manifest: Manifest, actor: Actor) -> str:
        """Offer a manifest as the next version of its tool, or the latest version if that is the same. Return the name
        of the version. Raises the errors of RegisterTool."""
        heads = sorted(await self.catalogue.heads([manifest.name]), key=lambda head: head.version)
        if heads:
            latest = heads[-1]
            if _numbered(manifest, latest.version).digest == latest.digest:
                await self.lift(latest.name, actor)
                return latest.name
            manifest = _numbered(manifest, await self._next_version(latest, manifest))
        registration = await register_tool(
            manifest,
            actor,
            catalogue=self.catalogue,
            schemas=self.schemas,
            runners=self.runners,
            wakeup=self.wakeup,
            clock=self.clock,
            imported=True,
            scan_policy=self.scan_policy,
        )
        return registration.version.head.name

    async def apply(self, version: str, reason: str, actor: Actor) -> None:
        """Take a version out of use for one of the reasons above. A version in another state stays as it is."""
        await self._change(version, _APPLIED[reason], ChangeRequest(actor, reason))

    async def lift(self, version: str, actor: Actor) -> None:
        """Bring a version back that an upstream took out of use."""
        head = await self._head(version)
        if head is None or head.standing.state_reason not in _APPLIED or head.standing.state not in _LIFTED:
            return
        await self._change(version, _LIFTED[head.standing.state], ChangeRequest(actor, "the upstream offers it again"))

    async def _change(self, version: str, verb: Verb, request: ChangeRequest) -> None:
        try:
            await change_version(version, verb, request, catalogue=self.catalogue, wakeup=self.wakeup, clock=self.clock)
        except MeshError as error:
            # Already so, retired or revoked: a stronger decision stands.
            if error.reason is not Reason.FAILED_PRECONDITION:
                raise

    async def _head(self, version: str) -> VersionHead | None:
        tool, number = split_version_name(version)
        heads = await self.catalogue.heads([tool])
        return next((head for head in heads if str(head.version) == number), None)

    async def _next_version(self, latest: VersionHead, manifest: Manifest) -> Version:
        [stored] = await self.catalogue.with_manifests([latest])
        bump = Bump.MAJOR
        valid = not await asyncio.to_thread(lambda: any(check_schemas(manifest, self.schemas)))
        if stored.manifest is not None and valid:
            bump = (await asyncio.to_thread(compare, stored.manifest, manifest, self.schemas)).bump
        return bump_version(latest.version, bump)


def _numbered(manifest: Manifest, version: Version) -> Manifest:
    return Manifest({**manifest.document, "version": str(version)})
