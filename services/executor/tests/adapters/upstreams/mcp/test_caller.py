"""What servers have beside tools reaches the caller: questions, log lines, prompts and resources."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from libs.common.errors import MeshError, Reason
from services.executor.adapters.upstreams.mcp.passed_methods import METHODS, passed_methods
from services.executor.adapters.upstreams.mcp.secrets import NO_SECRETS
from services.executor.domain.run import RunResult
from services.executor.domain.scheduling.heavy_work import Principal
from services.executor.domain.tool import Tool
from services.executor.tests.memory_channel import MemoryChannel
from services.executor.tests.packing import work
from services.executor.tests.upstreams import Upstreams
from tests.conformance.upstream.server import FixtureServer

OWNER = Principal("", "test")
EVERYTHING = ("elicitation", "sampling", "roots")


@pytest.fixture
async def upstreams(tmp_path: Path) -> AsyncIterator[Upstreams]:
    made = Upstreams(tmp_path)
    yield made
    await made.close()


@pytest.fixture(scope="module")
def fixtures() -> Iterator[FixtureServer]:
    server = FixtureServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


async def call(
    upstreams: Upstreams, tool: Tool, channel: MemoryChannel, capabilities: tuple[str, ...] = EVERYTHING, **fields: Any
) -> RunResult:
    run = replace(work(**fields), channel=channel, caller_capabilities=capabilities)
    return await upstreams.runner.run(tool, run)


def text_of(result: RunResult) -> Any:
    return json.loads(result.value["content"][0]["text"])


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
async def test_a_request_of_a_confined_server_reaches_the_caller_and_its_answer_the_server(
    upstreams: Upstreams, method: str
) -> None:
    upstreams.offer(method)
    upstreams.add_confined()
    channel = MemoryChannel()
    channel.answers.put_nowait({"request": {"action": "accept", "content": {"name": "Ada"}}})
    result = await call(upstreams, upstreams.tool(method), channel, text="Who?")
    assert text_of(result) == {"action": "accept", "content": {"name": "Ada"}}
    [question] = channel.questions
    [request] = question.requests
    assert (request.method, json.loads(request.params)) == (method, {"message": "Who?"})
    assert question.message
    assert json.loads(question.schema)["required"] == ["request"]


async def test_a_server_is_refused_what_its_caller_cannot_be_asked(upstreams: Upstreams) -> None:
    upstreams.offer("sampling/createMessage")
    upstreams.add_confined()
    tool = upstreams.tool("sampling/createMessage")
    channel = MemoryChannel()
    assert text_of(await call(upstreams, tool, channel, ("elicitation",)))["code"] == -32601
    # A call without a job has no caller to ask.
    assert json.loads((await upstreams.value(tool))["content"][0]["text"])["code"] == -32601
    assert channel.questions == []


async def test_a_canceled_call_stops_waiting_for_an_answer(upstreams: Upstreams) -> None:
    upstreams.offer("elicitation/create")
    upstreams.add_confined()
    channel = MemoryChannel()
    calling = asyncio.create_task(call(upstreams, upstreams.tool("elicitation/create"), channel))
    while not channel.questions:  # noqa: ASYNC110  (the server asks when it is ready)
        await asyncio.sleep(0.01)
    channel.cancel()
    with pytest.raises(MeshError) as caught:
        await calling
    assert caught.value.reason is Reason.INVOCATION_CANCELED


async def test_log_lines_of_a_server_reach_the_caller(upstreams: Upstreams) -> None:
    upstreams.offer("write-lines")
    upstreams.add_confined()
    channel = MemoryChannel()
    await call(upstreams, upstreams.tool("write-lines"), channel)
    assert channel.lines == [("info", "first"), ("error", '{"line":2}')]


async def test_a_prompt_of_a_confined_server_is_a_tool(upstreams: Upstreams) -> None:
    upstreams.tools = upstreams.tools.with_name("prompter.json")
    upstreams.offer("say")
    upstreams.add_confined()
    tool = await offered(upstreams, "prompts/get")
    result = await upstreams.value(tool, name="greet", arguments={"who": "Ada"})
    assert result["messages"][0]["content"]["text"] == "Greet Ada."


async def offered(upstreams: Upstreams, name: str) -> Tool:
    """Return a tool under the definition that its server has."""
    config = upstreams._directory.get("fix")
    assert config is not None
    if config.endpoint.WhichOneof("kind") == "mcp_stdio":
        confined = await upstreams._servers.start(config, OWNER, NO_SECRETS)
        found = confined.session.definitions[name].digest
        await confined.end()
        return upstreams.tool(name, found)
    server = upstreams._servers.connect(config, OWNER)
    await server.open()
    found = server.session.definitions[name].digest
    await server.close()
    return upstreams.tool(name, found)


async def test_a_server_without_sessions_asks_for_several_things_at_once(
    upstreams: Upstreams, fixtures: FixtureServer
) -> None:
    upstreams.add_remote(fixtures.url)
    tool = await offered(upstreams, "test_input_required_result_multiple_inputs")
    channel = MemoryChannel()
    answers = {"user_name": {"action": "decline"}, "greeting": {"role": "assistant"}, "client_roots": {"roots": []}}
    channel.answers.put_nowait(answers)
    assert text_of(await call(upstreams, tool, channel)) == answers
    [question] = channel.questions
    assert {each.key: each.method for each in question.requests} == {
        "user_name": "elicitation/create",
        "greeting": "sampling/createMessage",
        "client_roots": "roots/list",
    }


async def test_a_server_without_sessions_may_ask_again(upstreams: Upstreams, fixtures: FixtureServer) -> None:
    upstreams.add_remote(fixtures.url)
    tool = await offered(upstreams, "test_input_required_result_multi_round")
    channel = MemoryChannel()
    channel.answers.put_nowait({"step1": {"action": "accept", "content": {"name": "Ada"}}})
    channel.answers.put_nowait({"step2": {"action": "accept", "content": {"color": "red"}}})
    assert text_of(await call(upstreams, tool, channel)).keys() == {"step2"}
    assert len(channel.questions) == 2


async def test_a_refusal_of_a_server_keeps_its_code(upstreams: Upstreams, fixtures: FixtureServer) -> None:
    upstreams.add_remote(fixtures.url)
    tool = await offered(upstreams, "test_missing_capability")
    with pytest.raises(MeshError) as caught:
        await call(upstreams, tool, MemoryChannel(), ())
    assert caught.value.metadata == {"jsonrpc_code": "-32021", "required_capabilities": "sampling"}


async def test_each_method_of_a_server_over_http_is_a_tool(upstreams: Upstreams, fixtures: FixtureServer) -> None:
    upstreams.add_remote(fixtures.url)
    arguments: dict[str, dict[str, Any]] = {
        "prompts/list": {},
        "prompts/get": {"name": "test_simple_prompt"},
        "resources/list": {},
        "resources/templates/list": {},
        "resources/read": {"uri": "test://static-text"},
        "resources/subscribe": {"uri": "test://static-text"},
        "completion/complete": {
            "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
            "argument": {"name": "arg1", "value": "par"},
        },
    }
    assert arguments.keys() == METHODS
    members = {
        method: set(await upstreams.value(await offered(upstreams, method), **given))
        for method, given in arguments.items()
    }
    assert members == {
        "prompts/list": {"prompts"},
        "prompts/get": {"messages"},
        "resources/list": {"resources"},
        "resources/templates/list": {"resourceTemplates"},
        "resources/read": {"contents"},
        "resources/subscribe": set(),
        "completion/complete": {"completion"},
    }


async def test_a_changed_list_is_looked_at_again(upstreams: Upstreams, fixtures: FixtureServer) -> None:
    upstreams.add_remote(fixtures.url)
    await upstreams.value(await offered(upstreams, "test_trigger_tool_change"))
    assert upstreams.checks == ["fix"]


def test_a_server_has_the_methods_of_its_capabilities() -> None:
    assert passed_methods({"tools": {}}) == []
    assert [each["name"] for each in passed_methods({"prompts": {}})] == ["prompts/list", "prompts/get"]
    everything: dict[str, Any] = {"prompts": {}, "resources": {}, "completions": {}}
    assert {each["name"] for each in passed_methods(everything)} == METHODS - {"resources/subscribe"}
    everything["resources"] = {"subscribe": True}
    assert {each["name"] for each in passed_methods(everything)} == METHODS
