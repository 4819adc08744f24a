"""What else is asked of a mesh than the echo: results used again, changes that happen once, tools in sandboxes,
refusals, searches, and a day's
mix; each flat out, and at half of that at a fixed rate. All over gRPC, beside the governed echo of the same run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toolmesh.registry.v1 import discovery_service_pb2 as discovery

from bench.environment.mesh import Stage
from bench.fixtures.packs import register
from bench.floors.echo import ECHO
from bench.load.calls import MESSAGE, TEXT, message
from bench.load.generator import STAMP, Body, Target, offer
from bench.report.measurement import Row
from bench.suites.gateway import OPEN, STRAIGHT, memory

AT = 16
WORDS = {"text": "one two two three three three"}
SEARCH = "/toolmesh.registry.v1.DiscoveryService/SearchTools"
QUERIES = ("count the words of a text", "what time is it", "work out a sum", "say back what I say")
DENIED = "grpc 7"


@dataclass(frozen=True)
class Workload:
    """One kind of call: what is sent, where, and what answer is right."""

    case: str
    target: Target
    bodies: list[Body]
    expect: str = ""


def run(stage: Stage) -> Iterator[Row]:
    """Measure each workload flat out against the echo, then at half of its own saturation."""
    echo = _offer(stage, Workload(STRAIGHT, stage.service("executor", ECHO), MESSAGE))
    yield echo
    for workload in _workloads(stage):
        row = _offer(stage, workload)
        yield row.against(echo)
        yield _offer(stage, workload, rate=row.rps / 2)
    yield memory(stage, "workloads")


def _workloads(stage: Stage) -> Iterator[Workload]:
    executor = stage.service("executor", ECHO)
    warm = register(stage, "word_statistics", "words")
    kept = register(stage, "word_statistics", "words_kept", change=_kept)
    change = register(stage, "word_statistics", "words_change", change=_changing)
    removal = register(stage, "remove_report", "remove")
    yield Workload("read-only tool, result used again", executor, [message(kept, WORDS)])
    yield Workload("change, a key for each call", executor, [message(change, WORDS, key=STAMP)])
    files = [message(removal, {"name": "never-written"}, key=STAMP)]
    yield Workload("change of files, a key for each call", executor, files)
    yield Workload("warm tool in a sandbox", executor, [message(warm, WORDS)])
    yield Workload("refused: the token does not cover the tool", _uncovered(stage), MESSAGE, DENIED)
    asked = [Body(discovery.SearchToolsRequest(query=query).SerializeToString()) for query in QUERIES]
    yield Workload("search by meaning", stage.service("registry", SEARCH), asked)
    mixed = [
        message("echo", TEXT, weight=80),
        message("arithmetic", {"expression": "1+1"}, weight=8),
        message(kept, WORDS, weight=6),
        message(warm, WORDS, weight=4),
        message(change, WORDS, key=STAMP, weight=2),
    ]
    yield Workload("a mix: 80 of 100 the echo, 20 other tools", executor, mixed)


def _kept(document: dict[str, Any]) -> None:
    document["execution"]["cache_ttl"] = "3600s"


def _changing(document: dict[str, Any]) -> None:
    """As a tool that changes something: a call runs once for its key."""
    document["mutation_class"] = "write_reversible"
    document["interface"]["safety"]["read_only"] = False
    document["idempotency"] = {"mode": "key_required", "uncertain_outcome": "repeat"}
    document["compensation_tool"] = "tools/bench.words"
    document["side_effects"] = [{"resource": "file:reports/*", "operation": "update"}]


def _uncovered(stage: Stage) -> Target:
    token = stage.mesh.token(tools="core.arithmetic", ttl="1h")
    covered = stage.service("executor", ECHO)
    return Target(
        covered.address, ECHO, pki=stage.pki, authority="executor", headers={"authorization": f"Bearer {token}"}
    )


def _offer(stage: Stage, workload: Workload, rate: float = 0.0) -> Row:
    return offer(
        "workloads",
        workload.case + (", at half of saturation" if rate else ""),
        workload.target,
        workload.bodies,
        concurrency=OPEN if rate else AT,
        pids=stage.members(),
        rate=rate,
        seconds=2.5,
        expect=workload.expect,
    )
