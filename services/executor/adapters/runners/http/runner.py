"""The runner of tools that are HTTP endpoints. There is no sandbox: no code of the tool runs.

The client library (several MB) is imported on the first call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from libs.common.egress.public_addresses import Network
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.executor.domain import errors
from services.executor.domain.arguments.hosts import Hosts
from services.executor.domain.ports import SecretStore
from services.executor.domain.resilience.circuit import Circuits
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.tool import Tool

if TYPE_CHECKING:
    from services.executor.adapters.runners.http.client import HttpClient


class HttpRunner:
    """Decides which endpoints may be called, and creates the client on first use."""

    def __init__(
        self,
        internal: Iterable[Network],
        secrets: SecretStore,
        circuits: Circuits,
        clock: Clock,
        log: Log,
        heavy_work: HeavyWork,
        *,
        output_bytes: int,
    ) -> None:
        self._internal, self._secrets, self._clock, self._log = tuple(internal), secrets, clock, log
        self._circuits, self._heavy_work, self._output_bytes = circuits, heavy_work, output_bytes
        self._client: HttpClient | None = None

    def sandbox_for(self, tool: Tool) -> str | None:
        """Return the place of the call; None if the endpoint may not be called."""
        return None if tool.http is None or self.missing_for(tool) else f"remote {tool.http.url.origin}"

    def missing_for(self, tool: Tool) -> str:
        """Return why the endpoint may not be called; empty if it may."""
        if tool.http is None:
            return "its manifest has no HTTP endpoint"
        hosts = Hosts(tool.confinement.hosts)
        if any(url.host not in hosts or url.port not in tool.confinement.ports for url in tool.http.urls):
            return "its network policy does not name the host and port of its endpoint"
        return ""

    def runs_inline(self, tool: Tool) -> bool:
        """Return False: a service may take any time."""
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Call the endpoint."""
        missing = self.missing_for(tool)
        if tool.http is None or missing:
            raise errors.nothing_runs_it(tool.name, missing)
        return await self._connect().call(tool, tool.http, work)

    async def close(self) -> None:
        """Close the connections, if there are any."""
        if self._client is not None:
            await self._client.close()

    def _connect(self) -> HttpClient:
        if self._client is None:
            from services.executor.adapters.runners.http.client import HttpClient
            from services.executor.adapters.runners.http.connections import HttpConnections

            self._client = HttpClient(
                HttpConnections(self._internal),
                self._secrets,
                self._circuits,
                self._clock,
                self._log,
                self._heavy_work,
                output_bytes=self._output_bytes,
            )
        return self._client
