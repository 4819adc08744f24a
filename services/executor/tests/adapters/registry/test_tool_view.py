"""The view of the registry: fresh, resumable, and aware of its age."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from toolmesh.registry.v1.tool_health_pb2 import TOOL_HEALTH_DEGRADED, TOOL_HEALTH_UNAVAILABLE, VersionHealth
from toolmesh.registry.v1.tool_trust_pb2 import LookAlike
from toolmesh.registry.v1.tool_trust_pb2 import ToolTrust as ToolTrustMessage
from toolmesh.registry.v1.trust_service_pb2 import CONTRIBUTION_STAGE_BETA

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from services.executor.adapters.registry.tool_view import STALE_SECONDS, RegistryToolView
from services.executor.domain.tool import ToolTrust
from services.executor.tests.peers import RegistryPeer, registered, serving
from services.executor.tests.samples import a_manifest
from services.executor.tests.waiting import until


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def view(registry: RegistryPeer, reach: Callable[..., Any], clock: ManualClock, quiet: Log) -> AsyncIterator[Any]:
    registry.versions = {v.name: v for v in (registered(a_manifest()), registered(a_manifest(tool_id="other")))}
    made = RegistryToolView(await reach("registry", registry.address), clock, quiet)
    await made.start()
    yield made
    await made.stop()


def version_of(view: RegistryToolView, reference: str = "say") -> str:
    """The version that is found, or why none is."""
    try:
        return view.resolve(reference, "").version
    except MeshError as error:
        return error.reason.name


async def test_start_returns_with_the_complete_snapshot(view: RegistryToolView) -> None:
    assert version_of(view) == "1.0.0"
    assert version_of(view, "other") == "1.0.0"
    assert version_of(view, "nobody") == "TOOL_NOT_FOUND"


async def test_the_view_resolves_nothing_before_the_first_snapshot(
    registry: RegistryPeer, reach: Callable[..., Any], clock: ManualClock, quiet: Log
) -> None:
    view = RegistryToolView(await reach("registry", registry.address), clock, quiet)
    assert version_of(view) == Reason.SERVICE_UNAVAILABLE.name


async def test_the_view_applies_changes(view: RegistryToolView, registry: RegistryPeer) -> None:
    await registry.put(registered(a_manifest(version="1.1.0")))
    await until(lambda: version_of(view) == "1.1.0")
    await registry.put(registered(a_manifest(version="1.1.0"), "QUARANTINED"))
    await until(lambda: version_of(view) == "1.0.0")
    await registry.remove("tools/core.say/versions/1.0.0")
    await until(lambda: version_of(view) == "TOOL_UNAVAILABLE")


async def test_the_view_applies_the_trust_in_tools(view: RegistryToolView, registry: RegistryPeer) -> None:
    assert view.resolve("say", "").trust == ToolTrust()
    alike = [LookAlike(name="tools/acme.says", older=True), LookAlike(name="tools/globex.sayy")]
    changed = ToolTrustMessage(tool="tools/core.say", score=61, stage=CONTRIBUTION_STAGE_BETA, look_alikes=alike)
    await registry.trust(changed)
    expected = ToolTrust(61, None, "beta", taken_for=("tools/acme.says",))
    await until(lambda: view.resolve("say", "").trust == expected)
    assert view.resolve("other", "").trust == ToolTrust()
    version = registered(a_manifest())
    version.trust.CopyFrom(ToolTrustMessage(score=12, publisher_verified=True))
    await registry.put(version)
    await until(lambda: view.resolve("say", "").trust == ToolTrust(12, publisher_verified=True))


async def test_the_view_applies_the_health_of_versions(view: RegistryToolView, registry: RegistryPeer) -> None:
    assert view.resolve("say", "").health == ""
    name = "tools/core.say/versions/1.0.0"
    await registry.health(VersionHealth(version=name, health=TOOL_HEALTH_UNAVAILABLE))
    await until(lambda: view.resolve("say", "").health == "unavailable")
    assert view.resolve("other", "").health == ""
    # The same version again, as a snapshot sends it: its schemas are kept, its health is not.
    version = registered(a_manifest())
    version.health.health = TOOL_HEALTH_DEGRADED
    await registry.put(version)
    await until(lambda: view.resolve("say", "").health == "degraded")


async def test_a_broken_watch_resumes_where_it_was(view: RegistryToolView, registry: RegistryPeer) -> None:
    await registry.put(registered(a_manifest(version="1.1.0")))
    await until(lambda: version_of(view) == "1.1.0")
    await registry.break_streams()
    await registry.put(registered(a_manifest(version="1.2.0")))
    await until(lambda: version_of(view) == "1.2.0")
    assert registry.resumed_with == ["", "1"]
    assert version_of(view, "other") == "1.0.0"


async def test_a_new_snapshot_removes_missing_versions(view: RegistryToolView, registry: RegistryPeer) -> None:
    registry.forgets_tokens = True
    del registry.versions["tools/core.other/versions/1.0.0"]
    registry.versions["tools/core.say/versions/2.0.0"] = registered(a_manifest(version="2.0.0"))
    await registry.break_streams()
    await until(lambda: version_of(view) == "2.0.0")
    await until(lambda: version_of(view, "other") == "TOOL_NOT_FOUND")


async def test_the_view_reconnects_to_a_restarted_registry(
    pki: Any, reach: Callable[..., Any], clock: ManualClock, quiet: Log
) -> None:
    peer = RegistryPeer(registered(a_manifest()))  # type: ignore[abstract]
    async with serving(pki, "registry", peer.add) as address:
        view = RegistryToolView(await reach("registry", address), clock, quiet)
        await view.start()
    await peer.put(registered(a_manifest(version="1.5.0")))
    async with serving(pki, "registry", peer.add, port=address.port):
        await until(lambda: version_of(view) == "1.5.0")
        await view.stop()


async def test_a_stale_view_refuses_until_the_next_heartbeat(
    view: RegistryToolView, registry: RegistryPeer, clock: ManualClock
) -> None:
    clock.advance(STALE_SECONDS)
    assert version_of(view) == "1.0.0"
    clock.advance(0.1)
    assert version_of(view) == Reason.SERVICE_UNAVAILABLE.name
    await registry.heartbeat()
    await until(lambda: version_of(view) == "1.0.0")
    assert view.age() == 0.0


async def test_an_incomplete_snapshot_does_not_refresh_the_view(
    view: RegistryToolView, registry: RegistryPeer, clock: ManualClock
) -> None:
    registry.forgets_tokens = registry.breaks_snapshots = True
    registry.versions["tools/core.other/versions/1.0.0"] = registered(a_manifest(tool_id="other"), "QUARANTINED")
    await registry.break_streams()
    await until(lambda: len(registry.resumed_with) >= 3)
    clock.advance(STALE_SECONDS + 0.1)
    tried = len(registry.resumed_with)
    await until(lambda: len(registry.resumed_with) >= tried + 2)
    # Each of them told of one version, and none of them of the one that was taken out of use.
    assert version_of(view, "other") == Reason.SERVICE_UNAVAILABLE.name
    registry.breaks_snapshots = False
    await until(lambda: version_of(view, "other") == "TOOL_UNAVAILABLE")


async def test_a_silent_watch_is_reopened(
    registry: RegistryPeer, reach: Callable[..., Any], clock: ManualClock, quiet: Log
) -> None:
    view = RegistryToolView(await reach("registry", registry.address), clock, quiet, silence=0.05)
    await view.start()
    await until(lambda: len(registry.resumed_with) >= 3)
    await view.stop()
    assert registry.resumed_with[1:3] == ["0", "0"]


async def test_an_invalid_version_does_not_stop_the_watch(view: RegistryToolView, registry: RegistryPeer) -> None:
    nameless = registered(a_manifest(version="9.0.0"))
    nameless.name = "nothing like a name"
    broken = registered(a_manifest(tool_id="broken"))
    broken.manifest.input.schema = b"[]"
    await registry.put(nameless)
    await registry.put(broken)
    await registry.put(registered(a_manifest(version="1.1.0")))
    await until(lambda: version_of(view) == "1.1.0")
    assert version_of(view, "broken") == "TOOL_UNAVAILABLE"
