"""A governed call against a bare one: the same echo, over gRPC straight, through Envoy, and as JSON-RPC; flat out,
with much to carry, and at
half of what can be had.

What decides a target is measured in turns with its floor. At a fixed rate calls are due at fixed moments, and the
wait counts from the moment
a call was due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from bench.environment.lone_gateway import lone_gateway
from bench.environment.machine import MEGABYTE
from bench.environment.mesh import Fronted, Stage, fronted
from bench.floors.echo import ECHO
from bench.load.calls import ENTRY, LARGE, MESSAGE, entry, message
from bench.load.generator import Body, Target, in_turns, offer
from bench.load.mcp_calls import STATELESS, mcp_call
from bench.report.measurement import Row
from bench.suites.floor import BARE, BEHIND_ASGI

STRAIGHT = "governed echo, gRPC"
THROUGH_ENVOY = "governed echo, gRPC through Envoy"
JSON = "governed echo, JSON-RPC through Envoy"
MCP = "governed echo, MCP through Envoy"
ASGI_ALONE = "ASGI server, bare echo, without Envoy"
JSON_ALONE = "gateway alone, JSON-RPC, bare echo as its executor"
MCP_ALONE = "gateway alone, MCP, bare echo as its executor"
CONCURRENCIES = (1, 16, 64, 128)
# So many calls may be under way at a fixed rate; fewer would hold back what is due.
OPEN = 256
MOST_MEGABYTES = 1200


def run(stage: Stage) -> Iterator[Row]:
    """Measure every way at each concurrency, the floor beside what is measured against it."""
    with fronted(stage) as front:
        ways, most = _Ways(stage, front), dict[str, float]()
        for at in CONCURRENCIES:
            for row in _flat_out(ways, at):
                most[row.case] = max(most.get(row.case, 0.0), row.rps)
                yield row
        yield from _beside_grpc(ways)
        yield from _large(ways)
        yield from _at_half(ways.bare, ways.straight, BARE, STRAIGHT, most)
        yield from _at_half(ways.asgi, ways.json, BEHIND_ASGI, JSON, most)
    yield from _alone(stage)
    yield memory(stage, "gateway")


class _Ways:
    """The floors and the governed ways, each measured by a call."""

    def __init__(self, stage: Stage, front: Fronted) -> None:
        self._stage, self._front = stage, front

    def bare(self, at: int, bodies: Sequence[Body] = MESSAGE, *, rate: float = 0.0, case: str = BARE) -> Row:
        return self._offer(case, self._stage.floor(ECHO), bodies, at, [self._stage.floor_pid], rate)

    def asgi(self, at: int, bodies: Sequence[Body] = ENTRY, *, rate: float = 0.0, case: str = BEHIND_ASGI) -> Row:
        target, pids = self._front.json()
        return self._offer(case, target, bodies, at, pids, rate)

    def straight(self, at: int, bodies: Sequence[Body] = MESSAGE, *, rate: float = 0.0, case: str = STRAIGHT) -> Row:
        return self._governed(case, self._stage.service("executor", ECHO), bodies, at, rate)

    def through_envoy(self, at: int, bodies: Sequence[Body] = MESSAGE, *, case: str = THROUGH_ENVOY) -> Row:
        return self._governed(case, self._stage.edge(ECHO), bodies, at, 0.0)

    def json(self, at: int, bodies: Sequence[Body] = ENTRY, *, rate: float = 0.0, case: str = JSON) -> Row:
        return self._governed(case, self._stage.json_rpc(), bodies, at, rate)

    def mcp(self, at: int) -> Row:
        target, bodies = self._stage.mcp()
        return self._governed(MCP, target, bodies, at, 0.0)

    def _governed(self, case: str, target: Target, bodies: Sequence[Body], at: int, rate: float) -> Row:
        seconds = 3.0 if rate else 2.5
        members = self._stage.members()
        return offer("gateway", case, target, bodies, concurrency=at, pids=members, rate=rate, seconds=seconds)

    def _offer(self, case: str, target: Target, bodies: Sequence[Body], at: int, pids: list[int], rate: float) -> Row:
        seconds = 3.0 if rate else 2.5
        return offer("gateway", case, target, bodies, concurrency=at, pids=pids, rate=rate, seconds=seconds, warm=0.5)


def _flat_out(ways: _Ways, at: int) -> Iterator[Row]:
    """As many calls as come back. Where no target hangs on it, once is enough."""
    rounds, by = 1 if at == 128 else 3, "p50_ms" if at == 1 else "rps"
    floor, straight = in_turns(lambda: ways.bare(at), lambda: ways.straight(at), rounds, by)
    yield floor
    straight = straight.against(floor)
    if at == 1:
        yield straight.aimed("p50", "<=", 7)
    else:
        yield straight.aimed("rps", ">=", 0.5) if at in (16, 64) else straight
    yield ways.through_envoy(at).against(floor)
    floor, json = in_turns(lambda: ways.asgi(at), lambda: ways.json(at), rounds if at != 1 else 1, by)
    yield floor
    json = json.against(floor)
    yield json.aimed("rps", ">=", 0.5) if at in (16, 64) else json


def _beside_grpc(ways: _Ways, at: int = 16) -> Iterator[Row]:
    """JSON-RPC and MCP beside the same call over gRPC, all of them governed and through Envoy."""
    for way in (ways.json, ways.mcp):
        plain, row = in_turns(lambda: ways.through_envoy(at), lambda way=way: way(at), rounds=3, by="rps")  # type: ignore[misc]
        row = row.against(plain)
        yield replace(row, case=f"{row.case}, beside gRPC").aimed("rps", ">=", 0.6)


def _alone(stage: Stage, at: int = 16) -> Iterator[Row]:
    """The gateway by itself: its processor time beside that of an ASGI server that only passes on."""
    headers, call = mcp_call(STATELESS, "core__echo")
    with lone_gateway(stage) as lone:

        def measure(case: str, target: Target, bodies: Sequence[Body], pid: int) -> Row:
            return offer("gateway", case, target, bodies, concurrency=at, pids=[pid], seconds=2.5)

        def floor() -> Row:
            return measure(ASGI_ALONE, lone.floor(), ENTRY, lone.floor_pid)

        def json() -> Row:
            return measure(JSON_ALONE, lone.target("/rpc", {}), ENTRY, lone.pid)

        def mcp() -> Row:
            return measure(MCP_ALONE, lone.target("/mcp", headers), call, lone.pid)

        plain, row = in_turns(floor, json, rounds=3, by="cpu_us_per_call")
        yield plain
        yield row.against(plain)
        plain, row = in_turns(floor, mcp, rounds=3, by="cpu_us_per_call")
        yield row.against(plain)


def _large(ways: _Ways, at: int = 16) -> Iterator[Row]:
    """The same with 64 KB to carry there and back."""
    messages, entries = [message("echo", LARGE)], [entry("echo", LARGE)]
    floor = ways.bare(at, messages, case=f"{BARE}, 64 KB")
    yield floor
    yield ways.straight(at, messages, case=f"{STRAIGHT}, 64 KB").against(floor)
    yield ways.through_envoy(at, messages, case=f"{THROUGH_ENVOY}, 64 KB").against(floor)
    floor = ways.asgi(at, entries, case=f"{BEHIND_ASGI}, 64 KB")
    yield floor
    yield ways.json(at, entries, case=f"{JSON}, 64 KB").against(floor)


def _at_half(
    bare: Callable[..., Row], governed: Callable[..., Row], floor: str, case: str, most: Mapping[str, float]
) -> Iterator[Row]:
    """Each at half of the most that it answered in this run."""
    alone, row = in_turns(
        lambda: bare(OPEN, rate=most[floor] / 2, case=f"{floor}, at half of saturation"),
        lambda: governed(OPEN, rate=most[case] / 2, case=f"{case}, at half of saturation"),
        rounds=3,
        by="p99_ms",
    )
    yield alone
    yield row.against(alone).aimed("p99", "<=", 3)


def memory(stage: Stage, suite: str) -> Row:
    """What the whole mesh holds now, after all that was asked of it; pages that PostgreSQL's processes share count
    once."""
    status = stage.mesh.status()
    by_part = {part["name"]: round(part["rss_bytes"] / MEGABYTE) for part in status["services"]}
    held = round(status["rss_bytes"] / MEGABYTE)
    row = Row(suite, "memory of the whole mesh, afterwards", more={"MB": held, **by_part})
    return row.held(f"MB <= {MOST_MEGABYTES}", met=held <= MOST_MEGABYTES)
