"""Puts the runners of sandboxed tools together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from libs.common.telemetry.log import Log
from services.executor.adapters.runners.command import CommandRunner
from services.executor.adapters.runners.environment import Ground
from services.executor.adapters.runners.middleware import Measured, Paced, Typed
from services.executor.adapters.runners.python import PythonRunner
from services.executor.adapters.runners.worker.pool import Limits, Pool
from services.executor.adapters.sandbox.egress.proxy import EgressProxy
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.domain.ports import Runner


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms tools run here."""

    packs: Sequence[Path] = ()
    volumes: Mapping[str, Path] = field(default_factory=dict)
    workers: Limits = Limits()
    cold_starts: int = 4
    output_bytes: int = 16 << 20


class ConfinedRunners:
    """The runners, by the kind that manifests name, with what they share."""

    def __init__(
        self, sandboxes: Mapping[str, Sandbox], terms: Terms, log: Log, egress: Callable[[], EgressProxy] = EgressProxy
    ) -> None:
        paced = {tier: Paced(sandbox, terms.cold_starts) for tier, sandbox in sandboxes.items()}
        self._ground = Ground(paced, log, packs=terms.packs, volumes=terms.volumes, egress=egress)
        self._pool = Pool(terms.workers)
        python = PythonRunner(
            self._ground, self._pool, log, output_bytes=terms.output_bytes, lifetime_calls=terms.workers.calls
        )
        command = CommandRunner(self._ground, log, output_bytes=terms.output_bytes)
        runners: dict[str, Runner] = {"python": python, "command": command}
        self.by_kind: Mapping[str, Runner] = {
            kind: Measured(Typed(runner, log), kind) for kind, runner in runners.items()
        }

    async def start(self) -> None:
        """Find out which sandboxes work here, and copy the packs."""
        await self._ground.start()

    async def stop(self) -> None:
        """End every process and remove what was made."""
        await self._pool.close()
        await self._ground.stop()
