"""Progress of `tools.invoke` as events, and streams that were cut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest

from services.gateway.tests.rpc_answers import error_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
EVENTS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def body(script: Any, **params: Any) -> bytes:
    call = {"tool": "core.job", "arguments": script, **params}
    return orjson.dumps({"jsonrpc": "2.0", "id": "a", "method": "tools.invoke", "params": call})


class Events:
    """A response that is read event by event."""

    def __init__(self, response: httpx.Response) -> None:
        self.response, self.last_id = response, ""
        self._lines = response.aiter_lines()

    async def message(self) -> Any:
        """Return the next message, other than a change of the state."""
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "data" and value:
                message = orjson.loads(value)
                if "transition" not in message.get("params", {}):
                    return message
        raise AssertionError("the stream ended")


@asynccontextmanager
async def calling(mesh: Any, script: Any, **headers: str) -> AsyncIterator[Events]:
    sent = {**EVENTS, **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with mesh.client().http.stream("POST", "/rpc", content=body(script), headers=sent) as response:
        yield Events(response)


async def test_a_client_that_accepts_events_hears_of_progress_and_gets_the_result_last(mesh: Any) -> None:
    async with calling(mesh, {"steps": 2, "line": "hello"}, idempotency_key="k") as call:
        assert call.response.headers["content-type"] == "text/event-stream"
        first, second, line, last = [await call.message() for _ in range(4)]
    assert {each["method"] for each in (first, second, line)} == {"invocations.event"}
    assert (first["params"]["progress"]["current_step"], second["params"]["progress"]["current_step"]) == (1, 2)
    assert line["params"]["log_message"]["text"] == "hello"
    assert (last["id"], last["result"]["structured_content"]) == ("a", {"done": True})
    job = await mesh.peers.invocations.first()
    assert job.start.request.idempotency_key == "k"
    assert 0 < job.start.max_duration.seconds <= 30


async def test_a_failure_is_the_last_event(mesh: Any) -> None:
    async with calling(mesh, {"fail": "EXECUTION_FAILED"}) as call:
        failed = await call.message()
    assert (failed["id"], failed["error"]["data"]["reason"]) == ("a", "EXECUTION_FAILED")


async def test_a_refusal_before_the_first_event_has_its_status(mesh: Any) -> None:
    wrong = await mesh.client().http.post("/rpc", content=body({}, timeout_ms=0), headers=EVENTS)
    assert (wrong.headers["content-type"], error_of(wrong)["data"]["reason"]) == ("application/json", "INVALID_PARAMS")
    other = await mesh.client().http.post(
        "/rpc", content=b'{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}', headers=EVENTS
    )
    assert "result" in other.json()


async def test_a_stream_that_was_cut_goes_on_behind_the_last_event(mesh: Any) -> None:
    async with calling(mesh, {"steps": 2, "hold": True}) as call:
        assert (await call.message())["params"]["progress"]["current_step"] == 1
        last_id = call.last_id
    job = await mesh.peers.invocations.first()
    await job.detached.wait()
    job.release.set()
    async with calling(mesh, {"steps": 2, "hold": True}, last_event_id=last_id) as resumed:
        assert (await resumed.message())["params"]["progress"]["current_step"] == 2
        assert (await resumed.message())["result"]["structured_content"] == {"done": True}
    assert len(mesh.peers.invocations.jobs) == 1


@pytest.mark.parametrize("event_id", ["nonsense", "x" * 600, "W10", "=?="])
async def test_an_event_of_another_call_is_refused(mesh: Any, event_id: str) -> None:
    async with calling(mesh, {"steps": 1}) as call:
        await call.message()
        other = call.last_id
    for sent in (event_id, other):
        response = await mesh.client().http.post(
            "/rpc", content=body({"steps": 9}), headers={**EVENTS, "last-event-id": sent}
        )
        assert error_of(response)["data"]["violations"][0]["path"] == "last-event-id"
    assert len(mesh.peers.invocations.jobs) == 1


async def test_the_edge_is_told_the_method_and_a_tool_that_exists(mesh: Any) -> None:
    await mesh.peers.registry.watched.wait()
    client = mesh.client()
    known = await client.invoke("core.job", {})
    assert (known.headers["x-toolmesh-method"], known.headers["x-toolmesh-tool"]) == ("rpc/tools.invoke", "core.job")
    for unknown in (await client.invoke("secret-text"), await client.call("made.up"), await client.post(b"[]")):
        assert unknown.headers["x-toolmesh-method"].startswith("rpc/")
        assert "x-toolmesh-tool" not in unknown.headers
