"""Announces to the registry what this executor can run, from its start to its end and when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import grpc
import grpc.aio
from toolmesh.registry.v1 import runner_service_pb2 as pb
from toolmesh.registry.v1 import runner_service_pb2_grpc as rpc
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.errors import MeshError
from libs.common.ids import new_id
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.backoff import Backoff
from libs.common.telemetry.log import Log
from services.executor.adapters.circuits.recent_changes import CircuitChange
from services.executor.adapters.runners.capabilities import Capabilities

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_CALL_SECONDS, _FAREWELL_SECONDS = 5.0, 1.0
_MAX_CIRCUIT_NAME = 640


class RunnerAnnouncer:
    """Repeats the announcement at a third of its lease. A restarted registry still has it, or hears it again."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        instance: str,
        capabilities: Callable[[], Capabilities],
        log: Log,
        *,
        on_probed: Callable[[], None] = lambda: None,
        circuits: Callable[[], Sequence[CircuitChange]] = tuple,
    ) -> None:
        """`capabilities` may probe the machine, so it is called in a thread. `on_probed` is called after the first."""
        self._circuits, self._capabilities_changed = circuits, False
        self._stub = rpc.RunnerServiceStub(channel)
        self._instance, self._process_id = instance, new_id()
        self._capabilities, self._on_probed, self._log = capabilities, on_probed, log
        self._announced, self._changed = asyncio.Event(), asyncio.Event()
        self._probe: asyncio.Task[Capabilities] | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start announcing. Does not wait for the registry."""
        self._probe = asyncio.create_task(asyncio.to_thread(self._capabilities), name="runner-probe")
        self._task = asyncio.create_task(self._run(), name="runner-announcer")

    def announce_again(self) -> None:
        """Announce at once, because what this executor can run has changed."""
        self._capabilities_changed = True
        self._changed.set()

    def announce_circuits(self) -> None:
        """Announce at once, because a circuit has changed."""
        self._changed.set()

    async def wait(self) -> None:
        """Return when the registry has the announcement."""
        await self._announced.wait()

    async def stop(self) -> None:
        """Withdraw the announcement. If the registry does not answer, the lease ends it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._probe is not None:
            # A thread cannot be canceled, and what it probes is closed next.
            await asyncio.wait([self._probe])
        request = pb.WithdrawRunnersRequest(instance=self._instance, process_id=self._process_id)
        with suppress(grpc.aio.AioRpcError, MeshError):
            await self._stub.WithdrawRunners(request, timeout=_FAREWELL_SECONDS)

    async def _run(self) -> None:
        assert self._probe is not None
        capabilities = await asyncio.shield(self._probe)
        self._on_probed()
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            if self._changed.is_set():
                # Cleared first: a change amid the look at the capabilities is announced once more.
                self._changed.clear()
                if self._capabilities_changed:
                    self._capabilities_changed = False
                    capabilities = await self._probe_again()
            request = self._request(capabilities)
            try:
                answer = await self._stub.AnnounceRunners(request, timeout=_CALL_SECONDS)
            except (grpc.aio.AioRpcError, MeshError) as error:
                failure = from_rpc_error(error) if isinstance(error, grpc.aio.AioRpcError) else error
                self._log.warning("runners not announced", reason=failure.reason.name)
                await backoff.wait()
                continue
            if not self._announced.is_set():
                self._log.info("runners announced", lease=answer.lease.seconds)
            self._announced.set()
            backoff.reset()
            with suppress(TimeoutError):
                async with asyncio.timeout(answer.lease.ToNanoseconds() / 3e9):
                    await self._changed.wait()

    async def _probe_again(self) -> Capabilities:
        self._probe = asyncio.create_task(asyncio.to_thread(self._capabilities), name="runner-probe")
        return await asyncio.shield(self._probe)

    def _request(self, capabilities: Capabilities) -> pb.AnnounceRunnersRequest:
        return pb.AnnounceRunnersRequest(
            instance=self._instance,
            process_id=self._process_id,
            runners=[mpb.RunnerKind.Value(f"RUNNER_KIND_{kind.upper()}") for kind in capabilities.runners],
            sandbox_tiers=[mpb.SandboxTier.Value(f"SANDBOX_TIER_{tier.upper()}") for tier in capabilities.tiers],
            packs=[pb.AnnouncedPack(name=name, digest=digest) for name, digest in capabilities.packs],
            unkept_limits=[
                pb.UnkeptLimit(
                    sandbox_tier=mpb.SandboxTier.Value(f"SANDBOX_TIER_{tier.upper()}"),
                    limit=pb.LimitKind.Value(f"LIMIT_KIND_{limit.upper()}"),
                )
                for tier, limit in capabilities.unkept
            ],
            circuits=[_circuit(change) for change in self._circuits() if len(change.name) <= _MAX_CIRCUIT_NAME],
        )


def _circuit(change: CircuitChange) -> pb.AnnouncedCircuit:
    circuit = pb.AnnouncedCircuit(name=change.name, state=pb.CircuitState.Value(f"CIRCUIT_STATE_{change.state.name}"))
    circuit.change_time.FromDatetime(change.since)
    return circuit
