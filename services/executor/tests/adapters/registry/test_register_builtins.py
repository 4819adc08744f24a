"""Registration of the built-in tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from libs.common.errors import Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.registry.register_builtins import BuiltinRegistrar
from services.executor.tests.peers import RegistryPeer, serving
from services.executor.tests.samples import a_manifest
from services.executor.tests.waiting import until

MANIFESTS = [a_manifest(tool_id="one"), a_manifest(tool_id="two")]
NAMES = ["tools/core.one/versions/1.0.0", "tools/core.two/versions/1.0.0"]


async def at_once() -> None:
    """The registry knows the executor already."""


async def test_every_tool_is_registered(registry: RegistryPeer, reach: Callable[..., Any], quiet: Log) -> None:
    await BuiltinRegistrar(await reach("registry", registry.address), MANIFESTS, quiet, after=at_once).register_all()
    assert sorted(registry.versions) == NAMES


async def test_transient_failures_are_retried_and_permanent_ones_are_not(
    registry: RegistryPeer, reach: Callable[..., Any], quiet: Log
) -> None:
    registry.refusals = [Reason.SERVICE_UNAVAILABLE, Reason.TOOL_MANIFEST_INVALID]
    await BuiltinRegistrar(await reach("registry", registry.address), MANIFESTS, quiet, after=at_once).register_all()
    assert registry.registered == NAMES[:1]


async def test_registration_waits_for_the_registry(pki: Any, reach: Callable[..., Any], quiet: Log) -> None:
    peer = RegistryPeer()  # type: ignore[abstract]
    async with serving(pki, "registry", peer.add) as address:
        pass
    registrar = BuiltinRegistrar(await reach("registry", address), MANIFESTS, quiet, after=at_once)
    await registrar.start()
    async with serving(pki, "registry", peer.add, port=address.port):
        await until(lambda: sorted(peer.versions) == NAMES)
        await registrar.stop()
