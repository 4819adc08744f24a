"""Circuits of MCP servers: what opens them, whose calls they hold back, and two executors that share them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from msgspec.structs import replace

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.json.canonical import digest
from libs.common.testing.clock import ManualClock
from services.executor.adapters.circuits.shared_circuits import SharedCircuits
from services.executor.adapters.circuits.valkey_circuits import ValkeyCircuits
from services.executor.adapters.upstreams.mcp.server_time import ServerTime
from services.executor.domain.resilience.circuit import CallOutcome, CircuitConfig, CircuitState
from services.executor.domain.tool import Placement, Tool
from services.executor.tests.adapters.runners.http.services import OwnCircuits
from services.executor.tests.memory_channel import MemoryChannel
from services.executor.tests.packing import work
from services.executor.tests.upstreams import LOG, Upstreams, served
from services.executor.tests.waiting import until
from tests.harness.servers.mcp_server import tool as definition

CONFIG = CircuitConfig(failures=3, successes=2)


class Recorded(OwnCircuits):
    """Circuits that keep what is reported."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[CallOutcome] = []
        self.private: set[bool] = set()

    async def admit(self, name: str, config: Any, party: str = "") -> Any:
        self.private.add(config.private)
        return await super().admit(name, config, party)

    async def report(self, name: str, config: Any, admission: Any, outcome: CallOutcome) -> None:
        self.outcomes.append(outcome)
        await super().report(name, config, admission, outcome)

    def abandon(self, name: str, config: Any, admission: Any, outcome: CallOutcome = CallOutcome.NONE) -> None:
        self.outcomes.append(outcome)
        super().abandon(name, config, admission, outcome)


@pytest.fixture
async def upstreams(tmp_path: Path) -> AsyncIterator[Upstreams]:
    made = Upstreams(tmp_path, circuits=Recorded())
    yield made
    await made.close()


async def reason_of(upstreams: Upstreams, tool: Tool, tenant: str = "acme", **arguments: Any) -> Reason | None:
    try:
        await upstreams.runner.run(tool, replace(work(**arguments), tenant=tenant))
    except MeshError as error:
        return error.reason
    return None


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("say", CallOutcome.SUCCESS),
        ("fail", CallOutcome.SUCCESS),
        ("flood", CallOutcome.SUCCESS),
        ("die", CallOutcome.FAILURE),
        ("garbage", CallOutcome.FAILURE),
        ("unstructured", CallOutcome.FAILURE),
    ],
)
async def test_an_answer_says_how_the_server_is(upstreams: Upstreams, name: str, outcome: CallOutcome) -> None:
    schema: dict[str, Any] = {"outputSchema": {"type": "object"}} if name == "unstructured" else {}
    upstreams.offer(name, **schema)
    upstreams.add_confined()
    await reason_of(upstreams, upstreams.tool(name, digest(definition(name, **schema))), text="x")
    assert upstreams.circuits.outcomes == [outcome]


async def test_a_confined_server_that_dies_is_left_alone_for_its_own_caller(upstreams: Upstreams) -> None:
    upstreams.offer("die", "say")
    upstreams.add_confined()
    dies, says = upstreams.tool("die", circuit=CONFIG), upstreams.tool("say", circuit=CONFIG)
    reasons = [await reason_of(upstreams, dies) for _ in range(4)]
    assert reasons == [Reason.TOOL_CRASHED] * 3 + [Reason.CIRCUIT_OPEN]
    # All tools of the server share the circuit, and no process of another tenant is concerned.
    assert await reason_of(upstreams, says) is Reason.CIRCUIT_OPEN
    assert await reason_of(upstreams, says, "other") is None
    # The registry does not hear of it: it would tell all tenants that the tool cannot work.
    assert upstreams.circuits.private == {True}


async def test_a_server_that_cannot_start_is_left_alone(upstreams: Upstreams) -> None:
    upstreams.add_confined(command=["/usr/bin/false"])
    tool = upstreams.tool("say", circuit=CONFIG)
    reasons = [await reason_of(upstreams, tool) for _ in range(4)]
    assert reasons == [Reason.EXTERNAL_UNAVAILABLE] * 3 + [Reason.CIRCUIT_OPEN]


@pytest.mark.parametrize(
    ("own_limit", "outcome"), [(0.0, CallOutcome.FAILURE), (1e6, CallOutcome.NONE)], ids=["overdue", "early"]
)
async def test_a_canceled_call_counts_if_the_server_had_the_time_of_its_tool(
    upstreams: Upstreams, own_limit: float, outcome: CallOutcome
) -> None:
    upstreams.offer("hang")
    upstreams.add_confined()
    begun = asyncio.Event()

    def begin() -> float:
        begun.set()
        return 20.0

    run = asyncio.create_task(
        upstreams.runner.run(upstreams.tool("hang", own_limit=own_limit), replace(work(), on_begin=begin))
    )
    await begun.wait()
    run.cancel()
    await asyncio.wait([run])
    assert upstreams.circuits.outcomes == [outcome]


async def test_a_caller_who_does_not_answer_says_nothing_about_the_server(upstreams: Upstreams) -> None:
    upstreams.offer("elicitation/create")
    upstreams.add_confined()
    channel = MemoryChannel()
    asked = replace(work(text="a name"), channel=channel, caller_capabilities=("elicitation",))
    run = asyncio.create_task(upstreams.runner.run(upstreams.tool("elicitation/create", own_limit=60.0), asked))
    await until(lambda: bool(channel.questions))
    channel.cancel()
    await asyncio.wait([run])
    assert upstreams.circuits.outcomes == [CallOutcome.NONE]


@pytest.mark.parametrize(("seconds", "outcome"), [(4.0, CallOutcome.SLOW), (2.0, CallOutcome.SUCCESS)])
async def test_a_call_is_slow_by_the_time_of_the_server_alone(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch, seconds: float, outcome: CallOutcome
) -> None:
    # What the start of its process and the answers of its caller take is no part of it.
    monkeypatch.setattr(ServerTime, "seconds", seconds)
    upstreams.offer("say")
    upstreams.add_confined()
    tool = upstreams.tool("say", circuit=replace_fields(CONFIG, slow_seconds=3.0))
    assert await reason_of(upstreams, tool, text="x") is None
    assert upstreams.circuits.outcomes == [outcome]


class Service:
    """A remote server that can be switched off, and counts the calls that reach it."""

    def __init__(self) -> None:
        server = MCPServer("remote", version="2.0")
        self.is_well, self.reached = True, 0
        self.released = asyncio.Event()
        self.released.set()

        @server.tool()
        async def greet(name: str) -> str:
            """Greets a person by name."""
            self.reached += 1
            await self.released.wait()
            return f"Hello {name}"

        self._application = server.streamable_http_app(stateless_http=True)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or self.is_well:
            await self._application(scope, receive, send)
            return
        self.reached += 1
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def test_two_executors_leave_a_remote_server_alone_and_try_it_together(tmp_path: Path, valkey_url: str) -> None:
    clock, service = ManualClock(), Service()
    changes: list[str] = []
    executors = [make_executor(tmp_path / str(number), valkey_url, clock, changes) for number in range(2)]
    async with served(service) as url:
        # Another run of this test has circuits of its own.
        own = Placement(service=new_id())
        tool = await executors[0].remote_tool(url, "greet", placement=own, circuit=CONFIG)
        executors[1].add_remote(url)
        for each in executors:
            assert await reason_of(each, tool, name="Ada") is None

        service.is_well = False
        reasons = [await reason_of(executors[number % 2], tool, name="Ada") for number in range(12)]
        failed = reasons.index(Reason.CIRCUIT_OPEN)
        # Both refuse from then on, and nothing reaches the server.
        assert set(reasons[failed:]) == {Reason.CIRCUIT_OPEN}
        assert changes == [CircuitState.OPEN]
        reached = service.reached
        assert await reason_of(executors[0], tool, "other", name="Ada") is Reason.CIRCUIT_OPEN
        assert service.reached == reached

        service.is_well, service.reached = True, 0
        service.released.clear()
        clock.advance(CONFIG.open_seconds)
        calls = [asyncio.create_task(reason_of(executors[number % 2], tool, name="Ada")) for number in range(40)]
        await until(lambda: sum(call.done() for call in calls) + service.reached == len(calls))
        assert 1 <= service.reached <= len(calls) // 10
        service.released.set()
        results = await asyncio.gather(*calls)
        assert results.count(None) == service.reached
        assert changes[-1] is CircuitState.CLOSED
        for each in executors:
            assert await reason_of(each, tool, name="Ada") is None
    for each in executors:
        await each.close()
        await each.circuits.close()


def make_executor(folder: Path, valkey_url: str, clock: ManualClock, changes: list[str]) -> Upstreams:
    folder.mkdir()
    store = ValkeyCircuits(valkey_url, clock=clock, seconds=60.0)
    circuits = SharedCircuits(store, clock, LOG, lambda _, change, shared: changes.append(change.after))
    return Upstreams(folder, circuits=circuits)
