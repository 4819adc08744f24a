"""Runs the tools of one pack in the sandboxes of this machine, as an executor does, and discards their effects."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from toolmesh.registry.v1 import tool_version_pb2 as vpb
from toolmesh_sdk.manifests.parse import manifest_from

from authoring.packs.trials.trial import Trial
from authoring.packs.trials.trial_secrets import TrialSecrets
from libs.common.errors import MeshError
from libs.common.ids import new_id
from libs.common.telemetry.log import Log
from services.executor.adapters.registry.compile_tool import compile_version
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.adapters.runners.packs.packs import copy_pack
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.domain.results.effects import find_undeclared
from services.executor.domain.run import LogSource, RunRequest
from services.executor.domain.tool import Tool
from services.executor.domain.volumes import Volume


class PackSandboxes:
    """The sandboxed runners of an executor whose only pack is this one. Its volumes are empty folders."""

    def __init__(
        self, folder: Path, manifests: Mapping[str, Mapping[str, Any]], secrets: Mapping[str, str] | None = None
    ) -> None:
        """`secrets` are values for the secrets of the tools, by name. All others are made up."""
        self._folder = folder
        self.tools = {tool_id: _compile(manifest) for tool_id, manifest in manifests.items()}
        self._secrets = TrialSecrets(secrets or {}, self.tools.values())
        self._stack = AsyncExitStack()
        self._runners: SandboxedRunners | None = None

    async def __aenter__(self) -> PackSandboxes:
        scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="toolmesh-test-")))
        await asyncio.to_thread(copy_pack, self._folder, scratch / "packs" / self._folder.name)
        volumes = {name: Volume(scratch / "volumes" / name, shared=True) for name in self._volume_names()}
        for volume in volumes.values():
            volume.folder.mkdir(parents=True)
        null = os.open(os.devnull, os.O_WRONLY)
        self._stack.callback(os.close, null)
        self._runners = SandboxedRunners(
            {"process": BubblewrapSandbox("pack-test"), "kernel": GvisorSandbox("pack-test")},
            RunnerConfig(packs=[scratch / "packs"], pack_poll_seconds=0.0, volumes=volumes),
            Log("pack-test", descriptor=null),
            secrets=self._secrets,
        )
        await self._runners.start()
        self._stack.push_async_callback(self._runners.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def missing_for(self, tool: Tool) -> str:
        """Return why a tool cannot be tried here; empty if it can."""
        assert self._runners is not None
        if tool.runner not in self._runners.by_kind:
            return f"the runner {tool.runner} uses no sandbox"
        if self._runners.environment.tiers.find(tool) is None:
            return f"this machine has no sandbox of the tier {tool.confinement.tier} (toolmesh doctor says why)"
        return self._runners.by_kind[tool.runner].missing_for(tool)

    async def run(self, tool: Tool, arguments: Mapping[str, Any]) -> Trial:
        """Run a tool once, for at most its own time, and discard what it changed."""
        assert self._runners is not None
        given = {default.argument: default.value for default in tool.defaults} | dict(arguments)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as timer:

                def begin() -> float:
                    # The start of a sandbox is not part of a tool's time.
                    timer.reschedule(loop.time() + tool.own_limit)
                    return tool.own_limit

                request = RunRequest(
                    new_id(), given, tool.own_limit, subject="author", idempotency_key="trial", on_begin=begin
                )
                result = await self._runners.by_kind[tool.runner].run(tool, request)
        except TimeoutError:
            return Trial(arguments, hung=True)
        except MeshError as error:
            lines = [line.text for line in request.notes.lines if line.source is LogSource.FAILURE]
            return Trial(arguments, error=error, lines=tuple(lines))
        if result.rollback is not None:
            await result.rollback()
        undeclared = tuple(f"{effect.operation} {effect.resource}" for effect in find_undeclared(tool, result.effects))
        return Trial(arguments, value=result.value, undeclared=undeclared)

    def _volume_names(self) -> set[str]:
        reaches = (tool.confinement for tool in self.tools.values())
        return {volume for reach in reaches for volume in (*reach.reads, *reach.writes)}


def _compile(manifest: Mapping[str, Any]) -> Tool:
    message = manifest_from(dict(manifest))
    name = f"tools/{message.namespace}.{message.tool_id}"
    version = vpb.ToolVersion(
        name=f"{name}/versions/{message.version}", manifest=message, digest=f"sha256:{message.tool_id}"
    )
    tool = compile_version(version).tool
    assert tool is not None, "a checked manifest compiles"
    return tool
