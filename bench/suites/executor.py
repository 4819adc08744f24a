"""What running a tool costs, by where it runs: in the executor, in a warm worker, in a fresh sandbox, and under
another kernel.

Everything is a governed call over gRPC against an empty call of the same run, so what differs from one case to the
next is only the runner.
Cost is what a call takes when there is always a next one: at sixteen at once, the time per call is one over the calls
a second, so a case
that costs k empty calls answers 1/k as many. How long a call waits that is alone is shown beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from bench.environment.machine import MEGABYTE, family, resident_bytes
from bench.environment.mesh import Stage
from bench.fixtures.packs import register
from bench.floors.echo import ECHO, EMPTY
from bench.load.calls import message
from bench.load.generator import Body, UnansweredError, in_turns, offer
from bench.report.measurement import Row

AT = 16
WORDS = {"text": "one two two three three three"}
OUTLINE = {"document": "# One\n\n## Two\n"}


def run(stage: Stage) -> Iterator[Row]:
    """Measure each place to run beside the floor."""
    idle = resident_bytes(family(stage.parts["executor"][1]))
    yield Row("executor", "idle executor", more={"MB": round(idle / MEGABYTE, 1)})
    yield from _beside_floor(stage, "builtin tool, all governance", "echo", {"text": "hello"}, most=2.5)
    gvisor = _register(stage)
    yield from _beside_floor(stage, "warm Python worker", "bench.words_process", WORDS, most=3.5)
    yield _worker_memory(stage)
    yield from _beside_floor(stage, "cold bubblewrap", "bench.outline_process", OUTLINE, at=(1,))
    if not gvisor:
        yield Row(
            "executor", "tools with a kernel of their own do not run here; `make gvisor` and `toolmesh doctor` say why"
        )
        return
    yield from _beside_floor(stage, "warm Python worker, gVisor", "bench.words_kernel", WORDS)
    yield from _beside_floor(stage, "cold gVisor", "bench.outline_kernel", OUTLINE, at=(1,), seconds=4.0)


def _beside_floor(
    stage: Stage,
    case: str,
    tool: str,
    arguments: dict[str, Any],
    *,
    at: Sequence[int] = (AT, 1),
    seconds: float = 1.5,
    most: float = 0.0,
) -> Iterator[Row]:
    """The case under load, in turns with empty calls under the same load, and alone; `most` is how many empty calls
    it may cost. What starts
    a sandbox for every call is only looked at alone: under load it is the machine that would be measured."""
    body = message(tool, arguments)
    for callers in at:
        empty, measured = in_turns(
            partial(_empty, stage, callers, seconds),
            partial(_governed, stage, case, body, callers, seconds),
            rounds=3 if callers > 1 else 1,
            by="rps" if callers > 1 else "p50_ms",
        )
        yield empty
        row = measured.against(empty)
        yield row.aimed("time", "<=", most) if most and callers == AT else row


def _empty(stage: Stage, at: int, seconds: float) -> Row:
    target, pids = stage.floor(EMPTY), [stage.floor_pid]
    return offer("executor", "an empty call", target, [Body(b"")], concurrency=at, pids=pids, seconds=seconds, warm=0.5)


def _governed(stage: Stage, case: str, body: Body, at: int, seconds: float) -> Row:
    target, parts = stage.service("executor", ECHO), stage.members()
    return offer("executor", case, target, [body], concurrency=at, pids=parts, seconds=seconds, warm=0.5)


def _worker_memory(stage: Stage) -> Row:
    """What lives below the executor now: the launcher that all sandboxes share, and one worker in its sandbox."""
    below = family(stage.parts["executor"][1])[1:]
    found = {"MB": round(resident_bytes(below) / MEGABYTE, 1), "processes": len(below)}
    return Row("executor", "one warm worker, with sandbox and launcher", more=found)


def _register(stage: Stage) -> bool:
    """Register the sample tools once for each tier; say whether the stronger one can run here."""
    for tier in ("process", "kernel"):
        for file, name in (("word_statistics", "words"), ("outline_document", "outline")):
            register(stage, file, f"{name}_{tier}", tier=tier)
    return _runs(stage, "bench.words_kernel")


def _runs(stage: Stage, tool: str) -> bool:
    try:
        offer(
            "executor",
            "probe",
            stage.service("executor", ECHO),
            [message(tool, WORDS)],
            concurrency=1,
            seconds=0.5,
            warm=0.0,
        )
    except UnansweredError:
        return False
    return True
