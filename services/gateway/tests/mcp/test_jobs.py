"""Calls of tools that run as jobs: progress, log lines, questions, cancellation, tasks, and streams that were cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest
import pytest_asyncio
import redis.asyncio
from mcp_types import CreateTaskResult, GetTaskResult, ListTasksResult
from mcp_types.methods import validate_server_result
from toolmesh.executor.v1.executor_service_pb2 import CALLER_CAPABILITY_SAMPLING

from libs.common.sealing import new_key
from services.gateway.tests.conftest import Mesh, run_mesh
from services.gateway.tests.mcp.test_endpoint import META, NEW, OLD, McpClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
FORMS: dict[str, Any] = {"elicitation": {}}
TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
CAPABILITIES, LOG_LEVEL = "io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/logLevel"
YES_NO = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
ACCEPTED = {"action": "accept", "content": {"sure": True}}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def both(
    pki: Any, signer: Any, valkey_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Mesh, Mesh]]:
    """Two gateways with one Valkey and one executor."""
    folder = tmp_path_factory.mktemp("jobs")
    for name in ("a", "b"):
        (folder / name).mkdir()
    (folder / "1.key").write_bytes(new_key())
    chosen = {"TOOLMESH_REDIS_URL": valkey_url, "TOOLMESH_CONSOLE_KEYS": str(folder)}
    async with run_mesh(pki, signer, folder / "a", **chosen) as a:
        shared = a.peers.addresses()
        async with run_mesh(pki, signer, folder / "b", **chosen, **shared) as b:
            await asyncio.gather(a.peers.registry.watched.wait())
            yield a, b


@pytest_asyncio.fixture(loop_scope="module")
async def a(both: tuple[Mesh, Mesh]) -> AsyncIterator[Mesh]:
    yield both[0]
    await both[1].forget()
    await both[0].forget()


@pytest.fixture
def b(both: tuple[Mesh, Mesh]) -> Mesh:
    return both[1]


async def opened(mesh: Mesh, capabilities: Any = None) -> McpClient:
    """Return a client with a session whose gateway knows which tools run as jobs."""
    client = McpClient(mesh)
    hello = {"protocolVersion": OLD, "capabilities": capabilities or {}, "clientInfo": {"name": "t", "version": "1"}}
    answer = await client.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    assert answer.json()["result"]["capabilities"]["tasks"]["requests"] == {"tools": {"call": {}}}
    client.session = answer.headers["mcp-session-id"]
    return client


class Call:
    """A response that is read event by event."""

    def __init__(self, response: httpx.Response) -> None:
        self.response, self.last_id = response, ""
        self._lines = response.aiter_lines()

    async def message(self) -> Any:
        """Return the next message."""
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "data" and value:
                return orjson.loads(value)
        raise AssertionError("the stream ended")

    async def primed(self) -> None:
        """Return when the stream has an id to come back to."""
        while not self.last_id:
            name, _, value = (await anext(self._lines)).partition(": ")
            self.last_id = value if name == "id" else ""


@asynccontextmanager
async def calling(client: McpClient, script: Any, meta: Any = None, **params: Any) -> AsyncIterator[Call]:
    """Call the job in a session."""
    sent = {"name": "core__job", "arguments": script, "_meta": meta or {}, **params}
    body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": sent}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-session-id": client.session,
        "mcp-protocol-version": OLD,
    }
    async with client.http.stream("POST", "/mcp", content=orjson.dumps(body), headers=headers) as response:
        assert response.headers["content-type"] == "text/event-stream"
        yield Call(response)


def meta_of(capabilities: Any, **more: Any) -> dict[str, Any]:
    return {**META, CAPABILITIES: capabilities, **more}


def events_of(answer: httpx.Response) -> list[Any]:
    """Return the messages of a whole stream."""
    lines = answer.text.splitlines()
    return [orjson.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


async def test_a_session_hears_of_progress_and_lines_and_then_gets_the_result(a: Mesh) -> None:
    client = await opened(a)
    async with calling(client, {"steps": 2, "line": "hello"}, {"progressToken": "p"}) as call:
        first, second, line, last = [await call.message() for _ in range(4)]
    assert first["method"] == "notifications/progress"
    assert first["params"] == {"progressToken": "p", "progress": 1.0, "total": 2.0, "message": "step 1"}
    assert second["params"]["progress"] == 2.0
    assert line["params"] == {"level": "info", "logger": "tool", "data": "hello"}
    assert (last["id"], last["result"]["structuredContent"]) == (5, {"done": True})
    validate_server_result("tools/call", OLD, last["result"])
    job = await a.peers.invocations.first()
    # It ends with its request, so a client that never comes back keeps no slot.
    assert 0 < job.start.max_duration.seconds <= 300
    assert (await client.old("logging/setLevel", {"level": "error"})).json()["result"] == {}
    async with calling(client, {"line": "hello"}) as call:
        assert (await call.message())["result"]["isError"] is False


async def test_a_stateless_call_is_a_stream_only_if_it_has_something_to_say(a: Mesh) -> None:
    client = McpClient(a)
    quiet = await client.new("tools/call", {"name": "core__job", "arguments": {"steps": 2, "line": "x"}})
    assert quiet.json()["result"]["structuredContent"] == {"done": True}
    meta = meta_of({}, progressToken=7, **{LOG_LEVEL: "debug"})
    loud = await client.new("tools/call", {"name": "core__job", "arguments": {"steps": 1, "line": "x"}}, meta)
    progress, line, last = events_of(loud)
    assert (progress["params"]["progressToken"], line["params"]["data"]) == (7, "x")
    assert last["result"]["resultType"] == "complete"
    assert "id:" not in loud.text
    failed = await client.new("tools/call", {"name": "core__job", "arguments": {"fail": "EXECUTION_FAILED"}})
    assert failed.json()["result"]["isError"] is True


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_notification_cancels_the_invocation(a: Mesh, b: Mesh, elsewhere: bool) -> None:
    client = await opened(a)
    async with calling(client, {"hold": True}) as call:
        job = await a.peers.invocations.first()
        other = McpClient(b if elsewhere else a)
        other.session = client.session
        assert (await other.notify("notifications/cancelled", {"requestId": 5})).status_code == 202
        assert (await call.message())["error"]["data"]["reason"] == "CANCELED"
    await job.cancelled.wait()


async def test_a_stateless_client_that_leaves_cancels_the_invocation(a: Mesh) -> None:
    client = McpClient(a)
    running = asyncio.create_task(client.new("tools/call", {"name": "core__job", "arguments": {"hold": True}}))
    job = await a.peers.invocations.first()
    running.cancel()
    await job.cancelled.wait()


async def test_a_stream_that_was_cut_goes_on_at_another_replica(a: Mesh, b: Mesh) -> None:
    client = await opened(a)
    async with calling(client, {"steps": 2, "hold": True}, {"progressToken": 1}) as call:
        await call.primed()
        assert (await call.message())["params"]["progress"] == 1.0
        last_id = call.last_id
    job = await a.peers.invocations.first()
    await job.detached.wait()
    # A session may have lost its connection alone.
    assert not job.cancelled.is_set()
    there = McpClient(b)
    headers = {"mcp-session-id": client.session, "accept": "text/event-stream", "last-event-id": last_id}
    async with there.http.stream("GET", "/mcp", headers=headers) as response:
        resumed = Call(response)
        assert (await resumed.message())["params"]["progress"] == 2.0
        job.release.set()
        assert (await resumed.message())["result"]["structuredContent"] == {"done": True}
    # The end alone is a stream too.
    again = await there.http.get("/mcp", headers=headers)
    assert [message.get("id") for message in events_of(again)] == [None, 5]
    unknown = {**headers, "mcp-session-id": "none"}
    assert (await there.http.get("/mcp", headers=unknown)).status_code == 404


@pytest.mark.parametrize(
    ("schema", "shown", "answer", "heard"),
    [
        (YES_NO, ["sure"], ACCEPTED, {"sure": True}),
        ({"type": "string"}, ["answer"], {"action": "accept", "content": {"answer": "x"}}, "x"),
        ({"type": "array"}, ["answer"], {"action": "accept", "content": {"answer": "[1]"}}, [1]),
    ],
)
async def test_a_person_answers_through_a_session_at_any_replica(
    a: Mesh, b: Mesh, schema: Any, shown: Any, answer: Any, heard: Any
) -> None:
    client = await opened(a, FORMS)
    async with calling(client, {"question": schema}) as call:
        asked = await call.message()
        assert asked["method"] == "elicitation/create"
        assert list(asked["params"]["requestedSchema"]["properties"]) == shown
        there = McpClient(b)
        headers = {"mcp_session_id": client.session, "mcp_protocol_version": OLD}
        unknown = {"jsonrpc": "2.0", "id": asked["id"].replace("q1", "q2"), "result": answer}
        assert (await there.post(unknown, **headers)).status_code == 400
        reply = {"jsonrpc": "2.0", "id": asked["id"], "result": answer}
        assert (await there.post(reply, **headers)).status_code == 202
        assert (await call.message())["result"]["structuredContent"]["answer"] == heard


@pytest.mark.parametrize("answer", [{"result": {"action": "decline"}}, {"error": {"code": -1, "message": "no"}}])
async def test_a_declined_question_ends_the_call(a: Mesh, answer: Any) -> None:
    client = await opened(a, FORMS)
    async with calling(client, {"question": YES_NO}) as call:
        asked = await call.message()
        reply = {"jsonrpc": "2.0", "id": asked["id"], **answer}
        sent = await client.post(reply, mcp_session_id=client.session, mcp_protocol_version=OLD)
        assert sent.status_code == 202
        assert "CANCELED" in orjson.dumps(await call.message()).decode()


async def test_a_client_that_cannot_answer_is_not_asked(a: Mesh) -> None:
    client = await opened(a)
    async with calling(client, {"question": YES_NO}) as call:
        assert "FAILED_PRECONDITION" in orjson.dumps(await call.message()).decode()
    await (await a.peers.invocations.first()).cancelled.wait()
    await a.peers.invocations.first()
    refused = await McpClient(a).new("tools/call", {"name": "core__job", "arguments": {"question": YES_NO}})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32021)


async def test_a_stateless_client_answers_with_its_next_request(a: Mesh, b: Mesh) -> None:
    params = {"name": "core__job", "arguments": {"question": YES_NO}}
    meta = meta_of(FORMS)
    asked = (await McpClient(a).new("tools/call", params, meta)).json()["result"]
    validate_server_result("tools/call", NEW, asked)
    assert (asked["resultType"], list(asked["inputRequests"])) == ("input_required", ["q1"])
    job = await a.peers.invocations.first()
    state, there = {"requestState": asked["requestState"]}, McpClient(b)
    # Without an answer, the question is asked again.
    assert (await there.new("tools/call", {**params, **state}, meta)).json()["result"]["inputRequests"].keys() == {"q1"}
    for wrong in ({"requestState": "AAAA"}, {**state, "arguments": {}}):
        refused = await there.new("tools/call", {**params, **state, **wrong}, meta)
        assert refused.json()["error"]["code"] == -32602
    assert not job.cancelled.is_set()
    answered = {**params, **state, "inputResponses": {"q1": ACCEPTED, "other": ACCEPTED}}
    result = (await there.new("tools/call", answered, meta)).json()["result"]
    assert (result["resultType"], result["structuredContent"]["answer"]) == ("complete", {"sure": True})


async def test_a_session_starts_waits_for_and_cancels_tasks(a: Mesh) -> None:
    client = await opened(a, FORMS)
    params = {"name": "core__echo", "arguments": {"approval": True}, "task": {"ttl": 60_000}}
    created = (await client.old("tools/call", params)).json()["result"]
    CreateTaskResult.model_validate(created)
    task_id = created["task"]["taskId"]
    while not (shown := (await client.old("tasks/get", {"taskId": task_id})).json()["result"]).get("statusMessage"):
        pass
    GetTaskResult.model_validate(shown)
    assert (shown["status"], shown["ttl"]) == ("working", 60_000)
    assert "tickets/1" in shown["statusMessage"]
    job = await a.peers.invocations.first()
    waiting = asyncio.create_task(client.old("tasks/result", {"taskId": task_id}))
    await job.attached.wait()
    job.release.set()
    result = events_of(await waiting)[-1]["result"]
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task_id}
    assert result["structuredContent"] == {"done": True}
    assert (await client.old("tasks/cancel", {"taskId": task_id})).json()["error"]["code"] == -32602
    listed = (await client.old("tasks/list")).json()["result"]
    ListTasksResult.model_validate(listed)
    assert [task["status"] for task in listed["tasks"]] == ["completed"]
    second = (await client.old("tools/call", {**params, "arguments": {"hold": True}})).json()["result"]["task"]
    cancelled = (await client.old("tasks/cancel", {"taskId": second["taskId"]})).json()["result"]
    assert cancelled["status"] == "cancelled"
    for unknown in ("none", "0198c000-0000-7000-8000-000000000000"):
        assert (await client.old("tasks/get", {"taskId": unknown})).json()["error"]["code"] == -32602
    assert (await client.old("tasks/get", {"task_id": task_id})).json()["error"]["code"] == -32602


async def test_a_stateless_client_that_takes_tasks_gets_them(a: Mesh) -> None:
    client, meta = McpClient(a), meta_of({**TASKS, **FORMS})
    created = (await client.new("tools/call", {"name": "core__job", "arguments": {"question": YES_NO}}, meta)).json()
    task = created["result"]
    assert (task["resultType"], task["status"], task["ttlMs"]) == ("task", "working", 24 * 3600 * 1000)

    async def ask(method: str, **params: Any) -> Any:
        sent = {"taskId": task["taskId"], **params}
        return (await client.new(method, sent, meta, mcp_name=task["taskId"])).json()["result"]

    while (shown := await ask("tasks/get"))["status"] == "working":
        pass
    assert (shown["status"], list(shown["inputRequests"])) == ("input_required", ["q1"])
    assert (await ask("tasks/update", inputResponses={"q1": ACCEPTED}))["resultType"] == "complete"
    while (shown := await ask("tasks/get"))["status"] != "completed":
        pass
    assert shown["result"]["structuredContent"]["answer"] == {"sure": True}
    assert "status" not in await ask("tasks/cancel")
    refused = await client.new("tasks/get", {"taskId": task["taskId"]}, mcp_name=task["taskId"])
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32021)
    # A call that needs a person becomes a task too, and no error.
    waits = await client.new("tools/call", {"name": "core__fail_approval_required"}, meta)
    assert waits.json()["result"]["resultType"] == "task"
    asked = await client.new("tools/call", {"name": "core__fail_approval_required"})
    assert asked.json()["result"]["_meta"]["dev.toolmesh/error"]["reason"] == "APPROVAL_REQUIRED"


async def test_a_request_of_a_server_reaches_a_session_as_it_is(a: Mesh, b: Mesh) -> None:
    client = await opened(a, {"sampling": {}})
    async with calling(client, {"requests": {"only": "sampling/createMessage"}}) as call:
        asked = await call.message()
        assert (asked["method"], asked["params"]) == ("sampling/createMessage", {"message": "server"})
        reply = {"jsonrpc": "2.0", "id": asked["id"], "result": {"role": "assistant"}}
        sent = await McpClient(b).post(reply, mcp_session_id=client.session, mcp_protocol_version=OLD)
        assert sent.status_code == 202
        assert (await call.message())["result"]["structuredContent"]["answer"] == {"only": {"role": "assistant"}}
    job = await a.peers.invocations.first()
    assert list(job.start.request.caller_capabilities) == [CALLER_CAPABILITY_SAMPLING]


async def test_a_session_answers_several_requests_of_a_server_one_by_one_at_any_replica(
    a: Mesh, b: Mesh, valkey_url: str
) -> None:
    client = await opened(a, {"sampling": {}, "roots": {}})
    headers = {"mcp_session_id": client.session, "mcp_protocol_version": OLD}
    there = McpClient(b)

    async def reply(mesh: McpClient, request_id: str, result: Any) -> int:
        return (await mesh.post({"jsonrpc": "2.0", "id": request_id, "result": result}, **headers)).status_code

    async with calling(client, {"requests": {"x": "sampling/createMessage", "ü y": "roots/list"}}) as call:
        first = await call.message()
        cut = call.last_id
        second = await call.message()
        assert [first["method"], second["method"]] == ["sampling/createMessage", "roots/list"]
        assert await reply(client, first["id"], {"role": "assistant"}) == 202
        # What a client said is kept, and unreadable where it is kept.
        store = await dump(valkey_url)
        assert b"toolmesh:mcp:answers:" in store
        assert b"assistant" not in store
        assert await reply(there, first["id"] + "z", {}) == 400
        # A stream that was cut between the two asks for both again.
        resume = {"mcp-session-id": client.session, "accept": "text/event-stream", "last-event-id": cut}
        async with there.http.stream("GET", "/mcp", headers=resume) as response:
            resumed = Call(response)
            assert [(await resumed.message())["id"] for _ in range(2)] == [first["id"], second["id"]]
        assert await reply(there, second["id"], {"roots": []}) == 202
        answered = (await call.message())["result"]["structuredContent"]["answer"]
    assert answered == {"x": {"role": "assistant"}, "ü y": {"roots": []}}
    assert await reply(there, second["id"], {"roots": []}) == 400


async def dump(valkey_url: str) -> bytes:
    """Return every key of the store and its value."""
    async with redis.asyncio.Redis.from_url(valkey_url) as client:
        keys = [key async for key in client.scan_iter()]
        return b"\n".join([key + b" " + (await client.dump(key) or b"") for key in keys])


async def test_a_stateless_client_answers_all_requests_of_a_server_together(a: Mesh, b: Mesh) -> None:
    requests = {"x": "sampling/createMessage", "y": "roots/list"}
    params = {"name": "core__job", "arguments": {"requests": requests}, "_meta": meta_of({"sampling": {}, "roots": {}})}
    first = (await McpClient(a).new("tools/call", params)).json()["result"]
    assert {key: each["method"] for key, each in first["inputRequests"].items()} == requests
    said = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
    state = {"requestState": first["requestState"]}
    some = await McpClient(b).new("tools/call", {**params, **state, "inputResponses": {"x": said}})
    assert some.json()["result"]["resultType"] == "input_required"
    answers = {"x": said, "y": {"roots": []}, "z": {"roots": []}}
    last = (await McpClient(b).new("tools/call", {**params, **state, "inputResponses": answers})).json()["result"]
    assert last["structuredContent"]["answer"] == {"x": said, "y": {"roots": []}}
