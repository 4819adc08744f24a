"""The runner of MCP tools with one upstream, for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import uvicorn
from toolmesh.registry.v1 import upstream_pb2 as upb

from libs.common.errors import MeshError
from libs.common.json.canonical import digest
from libs.common.runtime.clock import SystemClock
from libs.common.secret_store.folders import MountedFolder
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.environment import RunnerEnvironment
from services.executor.adapters.runners.upstreams.mcp import McpRunner
from services.executor.adapters.runners.worker.pool import PoolLimits, WorkerPool
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.egress.proxy import EgressProxy
from services.executor.adapters.sandbox.rootfs import interpreter_path
from services.executor.adapters.secrets.folder_secrets import FolderSecrets
from services.executor.adapters.upstreams.directory import UpstreamDirectory
from services.executor.adapters.upstreams.servers import Servers
from services.executor.domain.scheduling.heavy_work import HeavyWork, Principal
from services.executor.domain.tool import Tool
from services.executor.tests.adapters.runners.http.services import OwnCircuits
from services.executor.tests.packing import MIB, work
from services.executor.tests.samples import a_tool
from services.executor.tests.waiting import until
from tests.harness.servers import mcp_server
from tests.harness.servers.mcp_server import tool as definition

SERVER = Path(mcp_server.__file__)
LOOPBACK = [ip_network("127.0.0.0/8")]
LOG = Log("test", level="error")


@asynccontextmanager
async def served(application: Any) -> AsyncIterator[str]:
    """Serve an ASGI application, and yield the address of its MCP endpoint."""
    config = uvicorn.Config(application, port=0, log_level="error", lifespan="on")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        await task


class Upstreams:
    """A runner of MCP tools, with the upstream `fix`."""

    def __init__(self, folder: Path, *, internal: Any = LOOPBACK, circuits: Any = None) -> None:
        self.circuits: Any = circuits or OwnCircuits()
        # A sandbox is another user.
        folder.chmod(0o755)
        self.tools = folder / "tools.json"
        self.checks: list[str] = []
        sandboxes = {"process": BubblewrapSandbox("test")}
        self.heavy_work = HeavyWork(threads=1)
        self._environment = RunnerEnvironment(
            sandboxes, LOG, egress=lambda: EgressProxy(internal), heavy_work=self.heavy_work
        )
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        store = FolderSecrets([MountedFolder(self.secrets)], SystemClock())
        self._servers = Servers(self._environment, internal, store, max_bytes=MIB)
        self._directory = UpstreamDirectory(grpc.aio.insecure_channel("127.0.0.1:1"), LOG)
        self.pool: WorkerPool[Any] = WorkerPool(PoolLimits(start_seconds=300), LOG)
        self.runner = McpRunner(self._directory, self._servers, self.pool, self.circuits, LOG, self.checks.append)

    def offer(self, *names: str, **changes: Any) -> None:
        self.tools.write_text(json.dumps([definition(name, **changes) for name in names]))

    def add(self, endpoint: upb.UpstreamEndpoint, generation: int = 1) -> None:
        self._directory._put(upb.Upstream(name="upstreams/fix", generation=generation, endpoint=endpoint))

    def add_confined(self, *, command: list[str] | None = None, **fields: Any) -> None:
        argv = command or [interpreter_path(), "-I", "-S", "-B", str(SERVER), str(self.tools)]
        mounts = [upb.UpstreamMount(path=str(path)) for path in (SERVER, self.tools.parent)]
        self.add(upb.UpstreamEndpoint(mcp_stdio=upb.McpStdioEndpoint(command=argv, mounts=mounts, **fields)))

    def add_remote(self, url: str, **fields: Any) -> None:
        self.add(upb.UpstreamEndpoint(mcp_http=upb.McpHttpEndpoint(url=url, **fields)))

    def keep_secret(self, name: str, value: str, **binding: list[str]) -> None:
        """Store a secret for the upstream, or replace it."""
        (self.secrets / f"{name}.json").write_text(
            json.dumps({"hosts": ["127.0.0.1"], "namespaces": ["fix"], **binding})
        )
        (self.secrets / name).write_text(value)

    def tool(self, name: str, accepted: str | None = None, **changes: Any) -> Tool:
        found = digest(definition(name)) if accepted is None else accepted
        entry_point = json.dumps({"upstream": "fix", "tool": name, "definition": found})
        return a_tool(**{"qualified": f"fix.{name}", "runner": "mcp", "entry_point": entry_point, **changes})

    async def remote_tool(self, url: str, name: str, **changes: Any) -> Tool:
        """Add a server over HTTP, and return a tool under the definition that it has."""
        self.add_remote(url)
        config = self._directory.get("fix")
        assert config is not None
        server = self._servers.connect(config, Principal("", "test"))
        await server.open()
        accepted = server.session.definitions[name].digest
        await server.close()
        return self.tool(name, accepted, **changes)

    async def value(self, tool: Tool, **arguments: Any) -> Any:
        return (await self.runner.run(tool, work(**arguments))).value

    async def failure(self, tool: Tool, **arguments: Any) -> MeshError:
        with pytest.raises(MeshError) as caught:
            await self.runner.run(tool, work(**arguments))
        return caught.value

    async def close(self) -> None:
        await self.pool.close()
        await self.runner.close()
        self._servers.close()
        await self._environment.stop()
