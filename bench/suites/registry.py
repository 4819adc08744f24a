"""A registry of ten thousand tools against an empty call: what finding, listing and watching cost once there are many."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial

import grpc
from toolmesh.registry.v1 import discovery_service_pb2 as discovery
from toolmesh.registry.v1 import registry_service_pb2 as registry
from toolmesh.registry.v1 import registry_service_pb2_grpc as registry_rpc

from bench.filling import TOOLS, register_tools, wait_for_meaning
from bench.floor import EMPTY
from bench.generator import Body, in_turns, offer
from bench.machine import MEGABYTE, resident_bytes
from bench.packs import registry_channel
from bench.rows import Row
from bench.stage import Stage

# Working out the meaning of ten thousand tools takes minutes of a core; searching them costs the same before it is done.
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
_REGISTRY = "/toolmesh.registry.v1.RegistryService/"
_DISCOVERY = "/toolmesh.registry.v1.DiscoveryService/"


def run(stage: Stage) -> Iterator[Row]:
    """Fill the registry, then measure each way of reading it beside the floor."""
    before, had = resident_bytes(stage.pids("registry")), stage.tools
    yield from register_tools(stage, "registry", TOOLS)
    with registry_channel(stage) as channel:
        yield _embedded(channel)
        yield _snapshot(channel)
    held = resident_bytes(stage.pids("registry"))
    more = {"MB": round(held / MEGABYTE, 1)}
    if not had:
        more["KB a tool"] = round((held - before) / TOOLS / 1024, 1)
    yield Row("registry", f"memory for {TOOLS:,} tools", more=more)
    for case, path, bodies, bound in _cases():
        measure = partial(_read, stage, case, path, bodies, 1, 1.2)
        alone, row = in_turns(lambda: _empty(stage, 1, 1.2), measure, rounds=5 if bound else 3)
        row = row.against(alone)
        yield row.aimed("p50", "<=", bound) if bound else row
    for case, path, bodies, bound in _cases():
        floor, row = in_turns(
            lambda: _empty(stage, 16, 1.0), partial(_read, stage, case, path, bodies, 16, 2.0), rounds=3
        )
        yield floor
        row = row.against(floor)
        yield row.aimed("p50", "<=", bound) if bound else row


def _empty(stage: Stage, concurrency: int, seconds: float) -> Row:
    floor, pids = stage.floor(EMPTY), [stage.floor_pid]
    return offer(
        "registry", "an empty call", floor, [Body(b"")], concurrency=concurrency, pids=pids, seconds=seconds, warm=0.5
    )


def _read(stage: Stage, case: str, path: str, bodies: list[Body], concurrency: int, seconds: float) -> Row:
    target, pids = stage.peer("registry", path), stage.pids("registry", "postgres")
    return offer("registry", case, target, bodies, concurrency=concurrency, pids=pids, seconds=seconds, warm=0.5)


def _cases() -> Iterator[tuple[str, str, list[Body], float]]:
    some = [f"bench.tool_{number:05d}" for number in range(0, TOOLS, max(1, TOOLS // 200))]
    resolve = [
        Body(registry.ResolveToolRequest(tool=name, version_constraint="^1.0").SerializeToString()) for name in some
    ]
    yield "ResolveTool", _REGISTRY + "ResolveTool", resolve, 1.5
    yield (
        "ListTools, a page of 100",
        _REGISTRY + "ListTools",
        [Body(registry.ListToolsRequest(namespace="bench").SerializeToString())],
        5,
    )
    words = discovery.SearchToolsRequest(query="refund an invoice", mode=discovery.SEARCH_MODE_LEXICAL)
    yield "SearchTools, words", _DISCOVERY + "SearchTools", [Body(words.SerializeToString())], 0
    search = _DISCOVERY + "SearchTools"
    yield "SearchTools, meaning, asked before", search, [_asked(query) for query in QUERIES], 0
    yield "SearchTools, meaning, never asked", search, [_asked(query) for query in _new_queries()], 40
    surface = discovery.CompileSurfaceRequest(task="refund an invoice and tell the customer", token_budget=2000)
    yield "CompileSurface, 2,000 tokens", _DISCOVERY + "CompileSurface", [Body(surface.SerializeToString())], 0


def _asked(query: str) -> Body:
    return Body(discovery.SearchToolsRequest(query=query).SerializeToString())


def _new_queries() -> list[str]:
    """Questions of ordinary length, more than are asked in one measurement, and other ones each time."""
    asked = [f"{verb} the {thing} for {whom}" for verb in _VERBS for thing in _THINGS for whom in _PEOPLE]
    return random.sample(asked, len(asked))


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
