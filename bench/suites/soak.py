"""Hours, in minutes: half of what the mesh can do, for long, and whether its memory grows meanwhile. Not part of an
ordinary run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

from bench.environment.machine import MEGABYTE
from bench.environment.mesh import Stage
from bench.load.calls import ENTRY
from bench.load.generator import offer
from bench.report.measurement import Row
from bench.report.slope import HOUR, settled, slope_per_hour
from bench.suites.gateway import OPEN

SECONDS = float(os.environ.get("BENCH_SOAK_SECONDS", "600"))
EVERY = 5.0
# What is seen as growth: more than this share of the memory at the beginning, by the slope, over the time that was
# watched.
MOST_GROWTH = 0.03
_TOTAL = "whole mesh"
Samples = dict[str, list[tuple[float, float]]]


def run(stage: Stage) -> Iterator[Row]:
    """Offer half of saturation for long while memory is sampled; then say how fast it grew."""
    most = offer("soak", "governed echo, JSON-RPC, flat out", stage.json_rpc(), ENTRY, concurrency=64, seconds=4)
    yield most
    samples: Samples = {}
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(_half, stage, most.rps / 2)
        _watch(stage, load, samples)
        yield load.result()
    yield from (_grown(part, taken) for part, taken in samples.items())


def _half(stage: Stage, rate: float) -> Row:
    case, members = f"governed echo, JSON-RPC, half of saturation for {SECONDS:g} s", stage.members()
    target = stage.json_rpc()
    return offer("soak", case, target, ENTRY, concurrency=OPEN, pids=members, rate=rate, seconds=SECONDS, warm=5)


def _watch(stage: Stage, load: Future[Row], samples: Samples) -> None:
    begin = time.monotonic()
    while not load.done():
        status = stage.mesh.status()
        at = time.monotonic() - begin
        held = {part["name"]: part["rss_bytes"] for part in status["services"]} | {_TOTAL: status["rss_bytes"]}
        for part, amount in held.items():
            samples.setdefault(part, []).append((at, amount / MEGABYTE))
        wait([load], timeout=EVERY)


def _grown(part: str, taken: list[tuple[float, float]]) -> Row:
    steady = settled(taken)
    slope = slope_per_hour(steady)
    more = {"MB at first": round(taken[0][1], 1), "MB at last": round(taken[-1][1], 1), "MB an hour": round(slope, 1)}
    row = Row("soak", f"memory of {part}", more=more)
    if part != _TOTAL:
        return row
    grown = slope * (steady[-1][0] - steady[0][0]) / HOUR / steady[0][1]
    return row.held(f"grows by less than {MOST_GROWTH:.0%} of itself", met=grown < MOST_GROWTH)
