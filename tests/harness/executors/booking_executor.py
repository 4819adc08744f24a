"""Another executor for a running mesh, with tools whose effect can be counted, and which dies at the moment that a
test names.

`python -m tests.harness.executors.booking_executor` reads the same environment as `python -m services.executor`, and
BOOKING_FAULTS, a folder: a file
`die-<moment>` in it kills the one process that comes to that moment first, and `stop-<moment>` stops it there until
it is continued.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.ids import new_id
from libs.common.rpc.application import RpcApplication
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.process import run
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor import storage_wiring, wiring
from services.executor.adapters.idempotency.claims import PostgresClaims
from services.executor.adapters.runners.builtin import BuiltinRunner
from services.executor.builtin.tool import read_only_manifest
from services.executor.config import Settings
from services.executor.domain.model import Claim, ClaimOutcome
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.tool import Tool
from tests.harness.executors.reporting_tool import reporting_tools, run_reporting
from tests.harness.executors.stepping_tool import run_steps, stepping_tools

MOMENTS = ("before_claim", "after_claim", "before_effect", "after_effect", "before_settle", "after_settle")
_FAULTS = Path(os.environ.get("BOOKING_FAULTS", "/nonexistent"))
_TEXT = {"type": "string", "maxLength": 1000, "description": "Any text."}
_RECEIPT = {
    "type": "object",
    "properties": {"receipt": {"type": "string", "description": "Another one for every booking."}},
    "required": ["receipt"],
    "additionalProperties": False,
}


def struck(moment: str) -> None:
    """Die or stand still, here and now, if a test wants this process to."""
    for blow, number in (("die", signal.SIGKILL), ("stop", signal.SIGSTOP)):
        with suppress(FileNotFoundError):
            (_FAULTS / f"{blow}-{moment}").unlink()
            os.kill(os.getpid(), number)


def entries(folder: Path) -> list[tuple[str, str, str]]:
    """Return what was booked: key, invocation and receipt of every effect."""
    ledger = folder / "ledger"
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return [(key, invocation, receipt) for key, invocation, receipt in map(str.split, lines)]


def _booking_manifest(tool_id: str, rule: mpb.UncertainOutcomeRule) -> mpb.ToolManifest:
    manifest = read_only_manifest(
        tool_id=tool_id,
        version="1.0.0",
        title=tool_id.replace("_", " ").capitalize(),
        description=f"Books one entry in a ledger of a test, which can be counted afterwards ({tool_id}).",
        search_hint="book an entry for a test",
        tags=["diagnostics"],
        input_schema={
            "type": "object",
            "properties": {
                "takes_ms": {"type": "integer", "minimum": 0, "maximum": 60_000, "description": "How long."}
            },
            "required": ["takes_ms"],
            "additionalProperties": False,
        },
        output_schema=_RECEIPT,
        examples=[("A booking", {"takes_ms": 0}, {"receipt": "r-1"})],
    )
    manifest.mutation_class = mpb.MUTATION_CLASS_WRITE_REVERSIBLE
    # A caller may ask for less than that of the tool, not for more.
    manifest.priority = 9
    manifest.compensation_tool = f"tools/core.{tool_id}"
    manifest.side_effects.append(mpb.SideEffect(resource="ledger/{entry}", operation=mpb.SIDE_EFFECT_OPERATION_CREATE))
    manifest.interface.safety.read_only = False
    manifest.execution.timeout_class = mpb.TIMEOUT_CLASS_LONG_RUNNING
    manifest.execution.timeout_default.CopyFrom(Duration(seconds=60))
    manifest.idempotency.mode = mpb.IDEMPOTENCY_MODE_KEY_REQUIRED
    manifest.idempotency.uncertain_outcome = rule  # type: ignore[assignment]
    if rule == mpb.UNCERTAIN_OUTCOME_RULE_QUERY_STATUS:  # type: ignore[comparison-overlap]
        manifest.idempotency.status_tool = "core.booked"
    return manifest


def _status_manifest() -> mpb.ToolManifest:
    return read_only_manifest(
        tool_id="booked",
        version="1.0.0",
        title="Booked",
        description="Says whether one of these runs has booked its entry in the ledger of a test.",
        search_hint="ask whether an entry was booked for a test",
        tags=["diagnostics"],
        input_schema={
            "type": "object",
            "properties": {"idempotency_key": _TEXT, "invocation_ids": {"type": "array", "items": _TEXT}},
            "required": ["idempotency_key", "invocation_ids"],
            "additionalProperties": False,
        },
        output_schema={
            "type": "object",
            "properties": {"happened": {"type": "boolean", "description": "Whether it did."}, "result": _RECEIPT},
            "required": ["happened"],
            "additionalProperties": False,
        },
        examples=[("None", {"idempotency_key": "k", "invocation_ids": []}, {"happened": False})],
    )


class Booking:
    """A tool that books; only the runner below can run it."""

    def __init__(self, tool_id: str, rule: mpb.UncertainOutcomeRule) -> None:
        self.manifest = _booking_manifest(tool_id, rule)

    def call(self, arguments: dict[str, Any]) -> Any:
        raise AssertionError("a booking is run by its runner")


class Booked:
    """The tool that knows."""

    manifest = _status_manifest()

    def call(self, arguments: dict[str, Any]) -> Any:
        for _, invocation, receipt in entries(_FAULTS):
            if invocation in arguments["invocation_ids"]:
                return {"happened": True, "result": {"receipt": receipt}}
        return {"happened": False}


class BookingRunner(BuiltinRunner):
    """Runs what ships with the executor, and bookings: half of their time passes before the effect and half after
    it."""

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        if tool.entry_point.startswith("report_"):
            return await run_reporting(work)
        if tool.entry_point.startswith("step_"):
            return await run_steps(work, _FAULTS)
        if not tool.entry_point.startswith("book_"):
            return await super().run(tool, work)
        work.begin()
        half = work.arguments["takes_ms"] / 2000
        await asyncio.sleep(half)
        struck("before_effect")
        receipt = self._book(tool, work)
        struck("after_effect")
        await asyncio.sleep(half)
        return RunResult({"receipt": receipt})

    def _book(self, tool: Tool, work: RunRequest) -> str:
        receipt, key = new_id(), work.idempotency_key
        if tool.entry_point == "book_again":
            # Safe to repeat, by its own doing: the second finds the entry of the first.
            draft, place = _FAULTS / f"draft-{receipt}", _FAULTS / f"entry-{key}"
            draft.write_text(receipt)
            with suppress(FileExistsError):
                place.hardlink_to(draft)
            return place.read_text()
        with (_FAULTS / "ledger").open("a") as ledger:
            ledger.write(f"{key} {work.invocation_id} {receipt}\n")
        return receipt


class MortalClaims(PostgresClaims):
    """The memory of keys, in a process that can be struck around it."""

    async def acquire(self, claim: Claim, on_wait: Callable[[], None] = lambda: None) -> ClaimOutcome | None:
        struck("before_claim")
        found = await super().acquire(claim, on_wait)
        if found is None:
            struck("after_claim")
        return found

    async def settle(self, claim: Claim, settled: ClaimOutcome) -> None:
        struck("before_settle")
        await super().settle(claim, settled)
        struck("after_settle")


def bookings() -> list[Any]:
    """The tools: one for each rule, and the one that knows."""
    return [
        # First, because one of the others names it.
        Booked(),
        Booking("book_again", mpb.UNCERTAIN_OUTCOME_RULE_REPEAT),  # type: ignore[arg-type]
        Booking("book_asked", mpb.UNCERTAIN_OUTCOME_RULE_QUERY_STATUS),  # type: ignore[arg-type]
        Booking("book_once", mpb.UNCERTAIN_OUTCOME_RULE_FAIL),  # type: ignore[arg-type]
        *reporting_tools(),
        *stepping_tools(),
    ]


async def build(settings: Settings, log: Log, tracing: Tracing) -> RpcApplication:
    """Compose an executor that books."""
    clock = SystemClock()
    storage_wiring.PostgresClaims = MortalClaims  # type: ignore[attr-defined, misc]
    tools = [*wiring.builtin_tools(clock), *bookings()]
    return wiring.compose(settings, log, tracing, clock=clock, tools=tools, builtin_runner=BookingRunner)


if __name__ == "__main__":
    run("executor", Settings, build)
