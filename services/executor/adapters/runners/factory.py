"""Builds the runners of sandboxed tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from libs.common.telemetry.log import Log
from services.executor.adapters.runners.capabilities import Capabilities
from services.executor.adapters.runners.channel.cancellation import CancelGrace
from services.executor.adapters.runners.channel.event_limits import STATE_BYTES
from services.executor.adapters.runners.command import CommandRunner
from services.executor.adapters.runners.environment import RunnerEnvironment
from services.executor.adapters.runners.middleware import ErrorMappingRunner, MetricsRunner, ThrottledSandbox
from services.executor.adapters.runners.python import PythonRunner
from services.executor.adapters.runners.worker.pool import PoolLimits, WorkerPool
from services.executor.adapters.runners.worker.worker import Worker
from services.executor.adapters.runners.workspace.workspace import Volumes
from services.executor.adapters.sandbox.egress.proxy import EgressProxy
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.adapters.secrets.call_secrets import EmptySecretStore
from services.executor.domain.ports import Runner, SecretStore
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.volumes import Volume


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """The deployment's settings for sandboxed runners."""

    packs: Sequence[Path] = ()
    pack_poll_seconds: float = 0.5
    """How often the packs are compared with their folders; 0 for never."""
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    workers: PoolLimits = PoolLimits()
    cold_starts: int = 4
    output_bytes: int = 16 << 20
    cancel_grace: CancelGrace = CancelGrace()
    state_bytes: int = STATE_BYTES
    """The largest state of a checkpoint."""


class SandboxedRunners:
    """The runners of sandboxed tools by manifest kind, and the environment and worker pool that they share."""

    def __init__(
        self,
        sandboxes: Mapping[str, Sandbox],
        config: RunnerConfig,
        log: Log,
        egress: Callable[[], EgressProxy] = EgressProxy,
        heavy_work: HeavyWork | None = None,
        secrets: SecretStore | None = None,
    ) -> None:
        """`secrets` has the credentials of Python tools; without it there are none."""
        throttled = {tier: ThrottledSandbox(sandbox, config.cold_starts) for tier, sandbox in sandboxes.items()}
        self._environment = RunnerEnvironment(
            throttled,
            log,
            packs=config.packs,
            pack_poll_seconds=config.pack_poll_seconds,
            volumes=config.volumes,
            egress=egress,
            heavy_work=heavy_work,
        )
        self._pool: WorkerPool[Worker] = WorkerPool(config.workers, log)
        self._environment.listen(self._retire_workers)
        python = PythonRunner(
            self._environment,
            self._pool,
            secrets or EmptySecretStore(),
            log,
            output_bytes=config.output_bytes,
            lifetime_calls=config.workers.max_calls,
            cancel_grace=config.cancel_grace,
            state_bytes=config.state_bytes,
        )
        command = CommandRunner(
            self._environment,
            log,
            output_bytes=config.output_bytes,
            cancel_grace=config.cancel_grace,
            state_bytes=config.state_bytes,
        )
        runners: dict[str, Runner] = {"python": python, "command": command}
        self.by_kind: Mapping[str, Runner] = {
            kind: MetricsRunner(ErrorMappingRunner(runner, log), kind) for kind, runner in runners.items()
        }

    def _retire_workers(self) -> None:
        self._pool.retire_except({pack.digest for pack in self._environment.packs.values()})

    def capabilities(self) -> Capabilities:
        """Return what these runners can run, after `start`. Blocking while the sandboxes have not been probed."""
        packs = tuple((pack.name, pack.digest) for pack in self._environment.packs.values())
        tiers = self._environment.tiers
        return Capabilities(tuple(self.by_kind), tiers.available(), packs, tiers.unkept())

    @property
    def environment(self) -> RunnerEnvironment:
        """What all runners of this executor share."""
        return self._environment

    @property
    def volumes(self) -> Volumes:
        """The volumes of this executor."""
        return self._environment.volumes

    async def start(self) -> None:
        """Probe the sandboxes and copy the tool packs."""
        await self._environment.start()

    async def stop(self) -> None:
        """End every process and remove the files of the runners."""
        await self._pool.close()
        await self._environment.stop()
