"""Runs programs, each call in a sandbox of its own. There is no shell anywhere on the way."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump
from libs.common.telemetry.log import Log
from services.executor.adapters.runners import measures
from services.executor.adapters.runners.environment import Ground
from services.executor.adapters.runners.one_shot import run_cold
from services.executor.adapters.runners.outcomes import lost, tell, unreadable
from services.executor.adapters.runners.packs.argv import argv_of
from services.executor.adapters.runners.packs.entry_points import Command, command_of
from services.executor.adapters.runners.packs.packs import Pack
from services.executor.adapters.runners.sandbox_plan import PYTHON, inside, plan_of, processor_seconds
from services.executor.adapters.runners.worker.answer import Answer
from services.executor.adapters.runners.worker.frames import FrameError, read_json
from services.executor.adapters.runners.workspace.workspace import Workspace
from services.executor.adapters.sandbox.egress.connection import Gate
from services.executor.adapters.sandbox.egress.proxy import error_of as refused
from services.executor.adapters.sandbox.endings import error_of
from services.executor.adapters.sandbox.port import Confined, End, Ending, Plan
from services.executor.domain import errors
from services.executor.domain.model import RunRequest, RunResult
from services.executor.domain.tool import Tool

_PIECE = 64 * 1024
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class _Spot:
    """A command, where its program is, and the name of the sandbox that it runs in."""

    command: Command
    program: tuple[str, ...]
    pack: Pack | None
    sandbox: str


class CommandRunner:
    """Gives a program the call's arguments as JSON on its standard input, and takes its standard output as the result."""

    def __init__(self, ground: Ground, log: Log, *, output_bytes: int) -> None:
        self._ground = ground
        self._log = log
        self._output_bytes = output_bytes
        self._spots: dict[str, _Spot | None] = {}

    def sandbox_for(self, tool: Tool) -> str | None:
        """Name the sandbox and the program in it; None if the program, its pack or a volume is not here."""
        spot = self._spot(tool)
        return None if spot is None else spot.sandbox

    def runs_inline(self, tool: Tool) -> bool:
        """A process may take any time."""
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Run the program once. Raises INJECTION_DETECTED before anything starts, if an argument could be more than a value."""
        spot = self._spot(tool)
        if spot is None:
            raise errors.nothing_runs_it(tool.name)
        sandbox = self._ground.tiers.need(tool)
        if work.preview and tool.confinement.hosts:
            raise errors.preview_unknown()
        argv = (*spot.program, *argv_of(spot.command.templates, work.arguments))

        async def attempt(workspace: Workspace) -> Answer:
            gate = await self._ground.way_out(tool)
            try:
                confined = await sandbox.start(_plan(tool, work, spot, argv, workspace, gate))
                measures.starts.labels("command", "cold").inc()
                try:
                    return await workspace.watched(confined.kill, self._answered(confined, tool, work, gate))
                finally:
                    await asyncio.shield(confined.kill())
            finally:
                if gate is not None:
                    await gate.close()

        return await run_cold(self._ground.volumes, tool, work, self._log, attempt)

    def _spot(self, tool: Tool) -> _Spot | None:
        if tool.digest not in self._spots:
            if len(self._spots) >= _REMEMBERED:
                self._spots.clear()
            self._spots[tool.digest] = self._found(tool)
        return self._spots[tool.digest]

    def _found(self, tool: Tool) -> _Spot | None:
        command = command_of(tool.entry_point)
        if command is None or not self._ground.volumes.offers(tool):
            return None
        name = self._ground.tiers.name(tool)
        if not command.pack:
            here = Path(command.program).is_file()
            return _Spot(command, (command.program,), None, f"{name} command {command.program}"[:255]) if here else None
        pack = self._ground.packs.get(command.pack)
        if pack is None or command.program not in pack.programs:
            return None
        program = inside(pack, command.program)
        # Python comes with every sandbox, wherever it is on this machine: what is written in it needs no line that finds it.
        argv = (*PYTHON, program) if program.endswith(".py") else (program,)
        return _Spot(command, argv, pack, f"{name} command {pack.label}"[:255])

    async def _answered(self, confined: Confined, tool: Tool, work: RunRequest, gate: Gate | None) -> Answer:
        limit = self._output_bytes if tool.persists else min(self._output_bytes, tool.max_result_bytes)
        feeding = asyncio.create_task(_feed(confined, dump(work.arguments)))
        try:
            output = await _read(confined, limit)
            ending = await confined.ended()
        finally:
            feeding.cancel()
        if gate is not None and (violation := refused(gate.take())):
            raise violation
        if ending.kind is not End.EXITED or ending.code != 0:
            raise self._failed(ending, tool, work)
        try:
            return Answer(read_json(output, limit))
        except FrameError as error:
            raise unreadable(error, limit) from None

    def _failed(self, ending: Ending, tool: Tool, work: RunRequest) -> MeshError:
        error = lost(ending, work) if ending.kind is End.KILLED else error_of(ending, work.seconds)
        tell(self._log, tool, work, error, ending.complaint)
        return error


def _plan(
    tool: Tool, work: RunRequest, spot: _Spot, argv: tuple[str, ...], workspace: Workspace, gate: Gate | None
) -> Plan:
    packs = [] if spot.pack is None else [(str(spot.pack.folder), inside(spot.pack))]
    return plan_of(
        tool,
        argv,
        readable=[*packs, *workspace.readable],
        writable=workspace.writable,
        cpu_seconds=processor_seconds(tool, work.seconds),
        egress_socket="" if gate is None else gate.path,
        environment={
            "TOOLMESH_INVOCATION": work.invocation_id,
            "TOOLMESH_IDEMPOTENCY_KEY": work.idempotency_key,
            "TOOLMESH_PREVIEW": "1" if work.preview else "",
        },
    )


async def _feed(confined: Confined, payload: bytes) -> None:
    # A program need not read what it is given.
    with suppress(ConnectionError):
        confined.stdin.write(payload)
        await confined.stdin.drain()
        confined.stdin.close()


async def _read(confined: Confined, limit: int) -> bytes:
    """Read all of the output. One byte more than the limit ends the process: Raises RESULT_TOO_LARGE."""
    output = bytearray()
    while piece := await confined.stdout.read(_PIECE):
        output += piece
        if len(output) > limit:
            await confined.kill()
            raise errors.result_too_large(len(output), limit)
    return bytes(output)
