"""Decisions against an empty call: remembered in the executor, remembered in authz, and uncached with few and many
policies; and how
many decisions of an ordinary day are remembered at all."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import grpc
import httpx
from toolmesh.executor.v1 import executor_service_pb2 as executor_pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as executor_rpc

from bench.environment.mesh import Stage
from bench.fixtures.policies import activate
from bench.floors.echo import EMPTY
from bench.load.calls import check
from bench.load.generator import STAMP, Body, offer
from bench.load.stubs import Asked, ask_in_turns
from bench.report.measurement import Row

TARGETS = {100: 1.8, 1000: 4.0}
CALLERS, CALLS = 50, 3000
TOOLS = (("echo", b'{"text":"hello"}'), ("arithmetic", b'{"expression":"1+1"}'), ("clock_now", b"{}"))
_REMEMBERED = "toolmesh_executor_decisions_total"


def run(stage: Stage) -> Iterator[Row]:
    """Measure each way of deciding beside the floor, then a day's mix."""
    yield from _workload(stage)
    floor = _floor(stage, 1)
    yield floor
    yield _in_executor(stage).against(floor).aimed("p50", "<=", 0.1)
    for count in (100, 1000):
        activate(stage, count)
        yield from _by_stubs(stage, count)
        yield from _carried(stage, count)
    # Leave the mesh as it started for the next measurement.
    activate(stage, 0)


def _by_stubs(stage: Stage, count: int) -> Iterator[Row]:
    """As the executor asks, alone: a question never asked and one asked before, in turns with an empty call over the
    same kind of channel."""
    floor = Asked("an empty call", stage.floor(EMPTY), lambda: [Body(b"")], [stage.floor_pid])
    questions = [
        Asked(case, stage.policy(), partial(_question, tag), stage.pids("authz")) for case, tag in _cases(count)
    ]
    (first, uncached), (second, cached) = ask_in_turns("authz", floor, questions)
    yield first
    yield uncached.against(first).aimed("p50", "<=", TARGETS[count])
    yield second
    yield cached.against(second)


def _cases(count: int) -> Iterator[tuple[str, str]]:
    """A question that only Cedar can answer, because its tags are not cached, and one that was asked:
    what they are called, and the tag."""
    yield f"Check, put to {count:,} policies", STAMP
    yield f"Check, remembered by authz, {count:,} policies", "bench"


def _question(tag: str) -> list[Body]:
    return [check(tag)]


def _carried(stage: Stage, count: int) -> Iterator[Row]:
    """What authz can carry: the caller's end left out. No target hangs on it, so once is enough."""
    for at, (case, tag) in product((1, 16), _cases(count)):
        floor = _floor(stage, at, 1.2)
        yield floor
        yield _check(stage, case, at, 1.2, tag).against(floor)


def _floor(stage: Stage, concurrency: int, seconds: float = 4.0) -> Row:
    floor, pids = stage.floor(EMPTY), [stage.floor_pid]
    return offer(
        "authz", "an empty call", floor, [Body(b"")], concurrency=concurrency, pids=pids, seconds=seconds, warm=0.3
    )


def _check(stage: Stage, case: str, concurrency: int, seconds: float = 4.0, tag: str = "bench") -> Row:
    pids = stage.pids("authz")
    return offer(
        "authz", case, stage.policy(), [check(tag)], concurrency=concurrency, pids=pids, seconds=seconds, warm=0.3
    )


def _in_executor(stage: Stage) -> Row:
    """How long the executor takes to remember a decision: part of every call."""
    with tempfile.NamedTemporaryFile("w", suffix=".token") as file:
        file.write(stage.token)
        file.flush()
        command = [sys.executable, "-m", "bench.load.decision_cache", stage.parts["authz"][0]]
        done = subprocess.run(
            [*command, "--pki", str(stage.pki), "--token", file.name], capture_output=True, text=True, check=True
        )
    seconds = json.loads(done.stdout)["remembered"]
    return Row(
        "authz",
        "a decision remembered in the executor",
        1,
        rps=round(1 / seconds, 1),
        p50_ms=round(seconds * 1000, 5),
        cpu_us_per_call=round(seconds * 1e6, 3),
    )


def _workload(stage: Stage) -> Iterator[Row]:
    """A day's mix: four of five calls come from a fifth of the callers, and four of five go to one of three tools."""
    tokens = [stage.mesh.token(ttl="1h", sub=f"did:web:toolmesh.local:users:bench{n}") for n in range(CALLERS)]
    chance = random.Random(4)
    before = _decisions(stage)
    pair = ((stage.pki / "orchestrator.key").read_bytes(), (stage.pki / "orchestrator.pem").read_bytes())
    credentials = grpc.ssl_channel_credentials((stage.pki / "ca.pem").read_bytes(), *pair)
    target = [("grpc.ssl_target_name_override", "executor")]
    with grpc.secure_channel(stage.parts["executor"][0], credentials, options=target) as channel:
        call = partial(_call, executor_rpc.ExecutorServiceStub(channel))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(call, [_draw(chance, tokens) for _ in range(CALLS)]))
    found = {source: count - before.get(source, 0) for source, count in _decisions(stage).items()}
    rate = found.get("remembered", 0) / sum(found.values())
    row = Row("authz", "decisions remembered, standard workload", 8, more={"hit rate": round(rate, 3), **found})
    yield row.against(row, target="hit rate > 0.8", met=rate > 0.8)


def _draw(chance: random.Random, tokens: list[str]) -> tuple[str, str, bytes]:
    few = len(tokens) // 5
    token = chance.choice(tokens[:few] if chance.random() < 0.8 else tokens[few:])
    tool, arguments = TOOLS[0] if chance.random() < 0.8 else chance.choice(TOOLS[1:])
    return token, tool, arguments


def _call(stub: executor_rpc.ExecutorServiceStub, drawn: tuple[str, str, bytes]) -> None:
    token, tool, arguments = drawn
    request = executor_pb.InvokeRequest(tool=tool, arguments=arguments)
    stub.Invoke(request, metadata=(("authorization", f"Bearer {token}"),), timeout=30)


def _decisions(stage: Stage) -> dict[str, float]:
    ops = next(part["ops"] for part in stage.mesh.status()["services"] if part["name"] == "executor")
    lines = httpx.get(f"http://{ops}/metrics", timeout=10).text.splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith(_REMEMBERED + "{"))
    return {labels.split('"')[1]: float(value) for labels, _, value in found}
