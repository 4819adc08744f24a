"""The announcement of an executor: what it holds, its renewal, and its end."""

from __future__ import annotations

import asyncio
from datetime import UTC
from typing import Any

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import runner_service_pb2 as pb
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.errors import Reason
from libs.common.testing.clock import ManualClock
from services.executor.adapters.circuits.recent_changes import RecentChanges
from services.executor.adapters.registry.announce_runners import RunnerAnnouncer
from services.executor.adapters.runners.capabilities import Capabilities
from services.executor.domain.resilience.circuit import CircuitState
from services.executor.tests.peers import RegistryPeer

ABLE = Capabilities(("builtin", "python"), ("process",), (("kit", "sha256:1"),), (("process", "cpu_share"),))


async def test_an_announcement_is_renewed_over_failures_and_withdrawn_at_the_end(
    reach: Any, quiet: Any, registry: RegistryPeer
) -> None:
    peer = registry.runners
    # A third of it is the pause between two announcements.
    peer.lease = Duration(nanos=30_000_000)
    peer.refusals = [Reason.SERVICE_UNAVAILABLE]
    announcer = RunnerAnnouncer(await reach("registry", registry.address), "one", lambda: ABLE, quiet)
    await announcer.start()
    async with asyncio.timeout(60):
        await announcer.wait()
        first = await peer.announcements.get()
        # The registry lost it, or refuses for a while: it hears it again.
        peer.announced.clear()
        peer.refusals = [Reason.SERVICE_UNAVAILABLE] * 2
        while await peer.announcements.get() != first or peer.refusals or not peer.announced:
            pass
    assert list(first.runners) == [mpb.RUNNER_KIND_BUILTIN, mpb.RUNNER_KIND_PYTHON]
    assert list(first.sandbox_tiers) == [mpb.SANDBOX_TIER_PROCESS]
    assert [(pack.name, pack.digest) for pack in first.packs] == [("kit", "sha256:1")]
    assert list(first.unkept_limits) == [
        pb.UnkeptLimit(sandbox_tier=mpb.SANDBOX_TIER_PROCESS, limit=pb.LIMIT_KIND_CPU_SHARE)
    ]
    await announcer.stop()
    assert not peer.announced


async def test_two_processes_of_one_instance_do_not_withdraw_each_other(
    reach: Any, quiet: Any, registry: RegistryPeer
) -> None:
    channel = await reach("registry", registry.address)
    old, new = (RunnerAnnouncer(channel, "one", lambda: ABLE, quiet) for _ in range(2))
    for announcer in (old, new):
        await announcer.start()
        async with asyncio.timeout(60):
            await announcer.wait()
    await old.stop()
    assert list(registry.runners.announced) == ["one"]
    await new.stop()
    assert not registry.runners.announced


async def test_a_change_is_announced_at_once(reach: Any, quiet: Any, registry: RegistryPeer) -> None:
    # The next renewal is an hour away.
    registry.runners.lease = Duration(seconds=3 * 3600)
    able = [ABLE]
    announcer = RunnerAnnouncer(await reach("registry", registry.address), "one", lambda: able[-1], quiet)
    await announcer.start()
    async with asyncio.timeout(60):
        await announcer.wait()
        await registry.runners.announcements.get()
        able.append(Capabilities(("builtin",), ("process",), (("kit", "sha256:2"), ("other", "sha256:3"))))
        announcer.announce_again()
        second = await registry.runners.announcements.get()
    assert [(pack.name, pack.digest) for pack in second.packs] == [("kit", "sha256:2"), ("other", "sha256:3")]
    await announcer.stop()


async def test_a_changed_circuit_is_announced_at_once_and_the_machine_is_not_probed_again(
    reach: Any, quiet: Any, registry: RegistryPeer
) -> None:
    registry.runners.lease = Duration(seconds=3 * 3600)
    clock, probes = ManualClock(), list[int]()
    changes = RecentChanges(clock)

    def probe() -> Capabilities:
        probes.append(1)
        return ABLE

    channel = await reach("registry", registry.address)
    announcer = RunnerAnnouncer(channel, "one", probe, quiet, circuits=changes.current)
    changes.listen(announcer.announce_circuits)
    await announcer.start()
    async with asyncio.timeout(60):
        await announcer.wait()
        assert not (await registry.runners.announcements.get()).circuits
        changes.note("acme/https://api.example.com", CircuitState.OPEN, 60.0)
        # More than an announcement may carry.
        changes.note("acme/" + "x" * 640, CircuitState.OPEN, 60.0)
        [circuit] = (await registry.runners.announcements.get()).circuits
    assert (circuit.name, circuit.state) == ("acme/https://api.example.com", pb.CIRCUIT_STATE_OPEN)
    assert circuit.change_time.ToDatetime(tzinfo=UTC) == clock.now()
    assert probes == [1]
    await announcer.stop()
