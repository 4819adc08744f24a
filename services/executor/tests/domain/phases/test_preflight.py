"""A call is checked before policy is asked: the token first, heavy arguments beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from libs.common.errors import Reason
from libs.common.json.jsonio import dump
from services.executor.adapters.registry.json_schema import input_contract
from services.executor.domain.tool import Contract
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_caller, a_request, a_tool

ROWS: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "rows": {"items": {"enum": [{"a": n} for n in range(1000)]}}},
}


class NotedContract:
    """Notes the threads in which arguments are validated."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.threads: list[int] = []
        self._contract = input_contract(dump(schema), ())
        self.contract = Contract(self._violations, None, self._contract.cost)

    def _violations(self, value: Any) -> Any:
        self.threads.append(threading.get_ident())
        return self._contract.violations(value)


async def test_a_token_that_does_not_name_the_tool_is_refused_before_the_arguments_are_read() -> None:
    noted = NotedContract(ROWS)
    world = World(a_tool(input=noted.contract))
    stranger = a_caller(grants=())
    existing = await world.failure(a_request(caller=stranger, arguments=b"not JSON"))
    missing = await world.failure(a_request(caller=stranger, tool="nay", arguments=b"not JSON"))
    assert existing.reason is missing.reason is Reason.TOOL_NOT_IN_TOKEN
    assert existing.message == missing.message
    assert (noted.threads, world.policy.asked) == ([], [])
    assert [record.reason for record in world.trail.durable] == [Reason.TOOL_NOT_IN_TOKEN] * 2
    assert [record.tool for record in world.trail.durable] == [None, None]


async def test_an_array_that_would_take_seconds_is_refused() -> None:
    world = World(a_tool(input_schema=ROWS, argument_spec=None))
    error = await world.failure(a_request(arguments=dump({"text": "a", "rows": [{}] * 9000})))
    assert (error.reason, [each.rule for each in error.violations]) == (Reason.ARGUMENTS_INVALID, ["validation_cost"])


async def test_light_arguments_are_checked_on_the_event_loop_and_heavy_ones_beside_it() -> None:
    noted = NotedContract(ROWS)
    world = World(a_tool(input_schema=ROWS, input=noted.contract))
    await world.invoke.execute(a_request())
    assert noted.threads == [threading.get_ident()]
    await world.invoke.execute(a_request(arguments=dump({"text": "a", "rows": [{"a": 1}] * 5})))
    assert noted.threads[1] != threading.get_ident()


async def test_heavy_arguments_are_checked_within_the_deadline_of_the_call() -> None:
    world, release = World(a_tool(input_schema=ROWS)), threading.Event()
    busy = asyncio.create_task(world.ports.heavy_work.run(a_caller(), lambda: release.wait(10)))
    await asyncio.sleep(0)
    deadline = asyncio.get_running_loop().time() + 0.05
    error = await world.failure(a_request(arguments=dump({"text": "a", "rows": [{"a": 1}] * 5}), deadline=deadline))
    assert error.reason is Reason.DEADLINE_EXCEEDED
    release.set()
    await busy
