"""A registry of ten thousand tools against an empty call: what finding, listing and watching cost once there are
many."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import grpc
from google.protobuf.message import Message
from toolmesh.registry.v1 import discovery_service_pb2 as discovery
from toolmesh.registry.v1 import registry_service_pb2 as registry
from toolmesh.registry.v1 import registry_service_pb2_grpc as registry_rpc

from bench.environment.machine import MEGABYTE, resident_bytes
from bench.environment.mesh import Stage
from bench.fixtures.fill_registry import TOOLS, register_tools, wait_for_meaning
from bench.fixtures.packs import registry_channel
from bench.floors.echo import EMPTY
from bench.load.generator import Body, offer
from bench.load.stubs import Asked, ask_in_turns
from bench.report.measurement import Row

# Working out the meaning of ten thousand tools takes minutes of a core; searching them costs the same before it is
# done.
PATIENCE = 60
QUERIES = ("tell my team that the build is broken", "how warm will it be tomorrow", "give the customer his money back")
_VERBS = [
    "send",
    "find",
    "cancel",
    "update",
    "archive",
    "translate",
    "count",
    "approve",
    "print",
    "explain",
    "merge",
    "share",
    "track",
    "sign",
    "check",
]
_THINGS = [
    "invoice",
    "contract",
    "meeting",
    "parcel",
    "report",
    "photo",
    "ticket",
    "budget",
    "recipe",
    "flight",
    "password",
    "backup",
    "survey",
    "logo",
    "map",
]
_PEOPLE = [
    "my boss",
    "our team",
    "the customer",
    "a new colleague",
    "the bank",
    "my sister",
    "the tax office",
    "our lawyer",
    "the landlord",
]
_WHEN = [
    "today",
    "before noon",
    "this week",
    "by Friday",
    "next month",
    "after the holidays",
    "as soon as possible",
    "once more",
    "in writing",
    "without delay",
    "in two languages",
    "from last year",
]
# More than are asked in one measurement.
_AT_A_TIME = 600
_REGISTRY = "/toolmesh.registry.v1.RegistryService/"
_DISCOVERY = "/toolmesh.registry.v1.DiscoveryService/"
_SEARCH = _DISCOVERY + "SearchTools"


def run(stage: Stage) -> Iterator[Row]:
    """Fill the registry, then measure each way of reading it beside the floor."""
    yield from register_tools(stage, "registry", TOOLS)
    with registry_channel(stage) as channel:
        yield _embedded(channel)
        yield _snapshot(channel)
    held = resident_bytes([stage.parts["registry"][1]])
    more = {"MB": round(held / MEGABYTE, 1), "KB a tool": round((held - stage.empty_registry) / TOOLS / 1024, 1)}
    yield Row("registry", f"memory for {TOOLS:,} tools", more=more)
    cases = list(_cases())
    for at in (1, 16):
        yield from _by_stubs(stage, [case for case in cases if case.bound], at)
    for at in (1, 16):
        for case in cases:
            yield from _compared(stage, case, at)
        for case in cases:
            if case.path.startswith(_DISCOVERY):
                yield _for_a_caller(stage, case, at)


@dataclass(frozen=True)
class _Case:
    name: str
    path: str
    bodies: Callable[[], list[Body]]
    bound: float = 0
    """How many empty calls it may take; none where that is only told."""


def _by_stubs(stage: Stage, cases: Sequence[_Case], at: int) -> Iterator[Row]:
    """What decides a target, as an orchestrator asks: all in turns with an empty call over the same kind of channel,
    so that what the
    database has to tidy up after ten thousand registrations does not affect the first measurement."""
    pids = stage.pids("registry", "postgres")
    floor = Asked("an empty call", stage.floor(EMPTY), lambda: [Body(b"")], [stage.floor_pid])
    asked = [Asked(case.name, stage.peer("registry", case.path), case.bodies, pids) for case in cases]
    for case, (empty, row) in zip(cases, ask_in_turns("registry", floor, asked, concurrency=at), strict=True):
        yield empty
        yield row.against(empty).aimed("p50", "<=", case.bound)


def _compared(stage: Stage, case: _Case, at: int, seconds: float = 1.2) -> tuple[Row, Row]:
    """What the registry can carry: the caller's end left out. No target hangs on it, so once is enough."""
    floor = _empty(stage, at, seconds)
    return floor, _read(stage, case, at, seconds).against(floor)


def _for_a_caller(stage: Stage, case: _Case, at: int, seconds: float = 1.2) -> Row:
    """What policy adds: the same for a caller, whom policy is asked about, against a service of the mesh."""
    served = _read(stage, case, at, seconds)
    pids = stage.pids("registry", "postgres", "authz")
    row = offer(
        "registry",
        f"{case.name}, for a caller",
        stage.service("registry", case.path),
        case.bodies(),
        concurrency=at,
        pids=pids,
        seconds=seconds,
        warm=0.25,
    )
    return row.against(served)


def _empty(stage: Stage, concurrency: int, seconds: float) -> Row:
    floor, pids = stage.floor(EMPTY), [stage.floor_pid]
    return offer(
        "registry", "an empty call", floor, [Body(b"")], concurrency=concurrency, pids=pids, seconds=seconds, warm=0.25
    )


def _read(stage: Stage, case: _Case, concurrency: int, seconds: float) -> Row:
    target, pids, bodies = stage.peer("registry", case.path), stage.pids("registry", "postgres"), case.bodies()
    return offer("registry", case.name, target, bodies, concurrency=concurrency, pids=pids, seconds=seconds, warm=0.25)


def _cases() -> Iterator[_Case]:
    some = [f"bench.tool_{number:05d}" for number in range(0, TOOLS, max(1, TOOLS // 200))]
    resolve = [registry.ResolveToolRequest(tool=name, version_constraint="^1.0") for name in some]
    yield _Case("ResolveTool", _REGISTRY + "ResolveTool", _same(resolve), 1.5)
    page = registry.ListToolsRequest(namespace="bench")
    yield _Case("ListTools, a page of 100", _REGISTRY + "ListTools", _same([page]), 5)
    words = discovery.SearchToolsRequest(query="refund an invoice", mode=discovery.SEARCH_MODE_LEXICAL)
    yield _Case("SearchTools, words", _SEARCH, _same([words]))
    known = [discovery.SearchToolsRequest(query=query) for query in QUERIES]
    yield _Case("SearchTools, meaning, asked before", _SEARCH, _same(known))
    yield _Case("SearchTools, meaning, never asked", _SEARCH, _new_questions().__next__, 40)
    surface = discovery.CompileSurfaceRequest(task="refund an invoice and tell the customer", token_budget=2000)
    yield _Case("CompileSurface, 2,000 tokens", _DISCOVERY + "CompileSurface", _same([surface]))


def _bodies(requests: Iterable[Message]) -> list[Body]:
    return [Body(request.SerializeToString()) for request in requests]


def _same(requests: Iterable[Message]) -> Callable[[], list[Body]]:
    bodies = _bodies(requests)
    return lambda: bodies


def _new_questions() -> Iterator[list[Body]]:
    """Questions of ordinary length, enough for one measurement each time, and none of them twice."""
    parts = [[f"{verb} the" for verb in _VERBS], _THINGS, [f"for {whom}" for whom in _PEOPLE], _WHEN]
    asked = [" ".join(words) for words in product(*parts)]
    random.shuffle(asked)
    for start in range(0, len(asked), _AT_A_TIME):
        yield _bodies(discovery.SearchToolsRequest(query=query) for query in asked[start : start + _AT_A_TIME])


def _embedded(channel: grpc.Channel) -> Row:
    """How long after the last registration the meaning of every tool is known."""
    begin = time.perf_counter()
    if pending := wait_for_meaning(channel, PATIENCE):
        return Row("registry", "meaning worked out", more={"still pending": pending})
    seconds = round(time.perf_counter() - begin)
    return Row("registry", "meaning worked out", more={"seconds after the last registration": seconds})


def _snapshot(channel: grpc.Channel) -> Row:
    stub, begin, seen = registry_rpc.RegistryServiceStub(channel), time.perf_counter(), 0
    for event in stub.WatchTools(registry.WatchToolsRequest(), timeout=120):
        if event.HasField("snapshot_complete"):
            break
        seen += 1
    return Row(
        "registry",
        "WatchTools, the whole snapshot",
        1,
        rps=round(seen / (time.perf_counter() - begin), 1),
        more={"versions": seen},
    )
