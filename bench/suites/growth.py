"""What a call costs once there is much of everything: tools, policies, records, and processes.

Two meshes run side by side: one grows, the other stays as it was. They are measured in turns, so that whatever else
the machine does
meanwhile falls on both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import psycopg

from bench.environment.envoy import edge_with
from bench.environment.machine import family
from bench.environment.mesh import Stage, stage
from bench.fixtures.fill_registry import TOOLS, register_tools, wait_for_meaning
from bench.fixtures.packs import registry_channel
from bench.fixtures.policies import activate
from bench.floors.echo import ECHO
from bench.load.calls import ENTRY, MESSAGE
from bench.load.generator import SPAN, Target, in_turns, offer
from bench.report.measurement import Row
from bench.suites.audit import BATCH, GROWN, append, fill
from tests.harness.executors.replicas import another

POLICIES = 1_000
AT = 16
MOST = 1.15
# The meaning of ten thousand tools takes minutes of a core to work out; until it is, that is what would be measured.
PATIENCE = float(os.environ.get("BENCH_PATIENCE", "90"))


def run(grown: Stage) -> Iterator[Row]:
    """Let the mesh grow step by step, each beside one that stays small."""
    (grown.folder / "small").mkdir(exist_ok=True)
    with stage(grown.folder / "small") as small:
        yield from _beside(grown, small, f"{max(10, grown.tools):,} tools")
        for count in (TOOLS // 10, TOOLS):
            yield from register_tools(grown, "growth", count)
            yield from _beside(grown, small, f"{count:,} tools{_not_yet(grown)}", MOST)
        activate(grown, POLICIES)
        yield from _beside(grown, small, f"{POLICIES:,} policies", MOST)
        activate(grown, 0)
        yield from _records(grown, small)
    yield from _doubled(grown, "executor", "gRPC through Envoy")
    yield from _doubled(grown, "gateway", "JSON-RPC through Envoy")


def _not_yet(grown: Stage) -> str:
    with registry_channel(grown) as channel:
        pending = wait_for_meaning(channel, PATIENCE)
    return f", {pending:,} not yet understood" if pending else ""


def _records(grown: Stage, small: Stage) -> Iterator[Row]:
    """Calls on a log of a million records, and records appended to it."""
    with psycopg.connect(grown.database(), autocommit=True) as connection:
        fill(grown, connection, GROWN)
    yield from _beside(grown, small, f"{GROWN:,} audit records", MOST)
    few, many = in_turns(
        partial(_append, small, "append to a small log"),
        partial(_append, grown, f"append to a log of {GROWN:,} records"),
        rounds=3,
        by="cpu_us_per_call",
    )
    yield few
    yield many.against(few).aimed("cpu", "<=", 1.2)


def _append(on: Stage, case: str) -> Row:
    return replace(append(on, case, writers=8, batch=BATCH, seconds=2.0 * SPAN), suite="growth")


def _beside(grown: Stage, small: Stage, what: str, most: float = 0.0) -> Iterator[Row]:
    """The same echo on both, in turns. The processor time of a call is its cost; the wait is shown beside it."""
    few, many = in_turns(
        partial(_echo, small, f"governed echo, on a small mesh beside {what}"),
        partial(_echo, grown, f"governed echo, {what}"),
        rounds=5,
        by="cpu_us_per_call",
    )
    yield few
    row = many.against(few)
    yield row.aimed("cpu", "<=", most) if most else row


def _echo(on: Stage, case: str) -> Row:
    target, parts = on.service("executor", ECHO), on.members()
    return offer("growth", case, target, MESSAGE, concurrency=AT, pids=parts, seconds=1.5, warm=0.4)


def _doubled(grown: Stage, service: str, way: str) -> Iterator[Row]:
    """The echo through an edge with one and with two processes behind it."""
    with _edge(grown, ()) as alone, _edge(grown, (service,)) as both:
        one, two = in_turns(
            partial(_through, grown, f"{way}, one {service}", alone),
            partial(_through, grown, f"{way}, two {service}s", both),
            rounds=3,
            by="rps",
        )
    yield one
    yield two.against(one)


@contextmanager
def _edge(grown: Stage, doubled: tuple[str, ...]) -> Iterator[tuple[int, list[int]]]:
    """Run an edge of our own over the mesh, with a second process of a service or without; yield its port, and what
    came with it."""
    ports = grown.mesh.status()["ports"]
    rendered = grown.mesh.state / "envoy" / "envoy.yaml"
    if not doubled:
        with edge_with(rendered, grown.folder, ports, {}) as (port, pid):
            yield port, [pid]
        return
    with another(grown.mesh, doubled[0], grown.folder) as second:
        with edge_with(rendered, grown.folder, ports, {ports[doubled[0]]: second.port}) as (port, pid):
            yield port, [pid, *family(second.process.pid)]


def _through(grown: Stage, case: str, edge: tuple[int, list[int]]) -> Row:
    port, came = edge
    target = grown.edge(ECHO) if "gRPC" in case else grown.json_rpc()
    scheme = target.address.partition("://")[0]
    here = Target(f"{scheme}://127.0.0.1:{port}", target.path, kind=target.kind, headers=target.headers)
    bodies = MESSAGE if "gRPC" in case else ENTRY
    pids = {**grown.members(), "more": came}
    return offer(
        "growth", f"governed echo, {case}", here, bodies, concurrency=64, pids=pids, seconds=2.5, connections=4
    )
