"""From a need to a call: a tool is found by what it does, its schema is loaded, and only then can it be called."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2
from toolmesh.common.v1 import error_reason_pb2
from toolmesh.registry.v1 import discovery_service_pb2 as pb
from toolmesh.registry.v1 import discovery_service_pb2_grpc as rpc
from toolmesh.registry.v1 import lifecycle_service_pb2 as lifecycle_pb
from toolmesh.registry.v1 import lifecycle_service_pb2_grpc as lifecycle_rpc

from tests.harness.mesh import Mesh, cli, invoke
from tests.harness.stores import wait_until

VERSION = "tools/core.arithmetic/versions/1.0.0"
ARGUMENTS = {"expression": "20 + 22"}


def rpc_outcome(mesh: Mesh, **more: Any) -> dict[str, Any]:
    """Call the tool as an application does; return the result or the error's data."""
    call = {"tool": "arithmetic", "arguments": ARGUMENTS, **more}
    answer = mesh.rpc("tools.invoke", call, token=mesh.token()).json()
    return answer["result"] if "result" in answer else answer["error"]["data"]


@pytest.fixture
def deferred(mesh: Mesh) -> Iterator[None]:
    """The tool's schema is loaded only on demand, until the end of the test."""
    with mesh.direct_channel("registry", "operator") as channel:
        verbs = lifecycle_rpc.LifecycleServiceStub(channel)
        verbs.DeferVersion(lifecycle_pb.DeferVersionRequest(name=VERSION, reason="a scenario"), timeout=10)
        try:
            wait_until(lambda: rpc_outcome(mesh).get("code") == "E3108", "a tool that is deferred")
            yield
        finally:
            verbs.LoadVersion(lifecycle_pb.LoadVersionRequest(name=VERSION, reason="it is over"), timeout=10)
            wait_until(lambda: "structured_content" in rpc_outcome(mesh), "a tool that is there again")


def test_a_list_of_what_may_be_used_holds_what_the_token_covers_and_policy_allows(mesh: Mesh) -> None:
    narrow = mesh.token(tools="core.echo,core.arithmetic")
    every = mesh.rpc("tools.list", {}, token=narrow).json()["result"]["tools"]
    usable = mesh.rpc("tools.list", {"usable_only": True}, token=narrow).json()["result"]["tools"]
    assert [each["tool"]["name"] for each in usable] == ["tools/core.arithmetic", "tools/core.echo"]
    assert len(every) > len(usable)
    listed = json.loads(cli("tools", "list", "--usable", "--token", narrow, "--json", state=mesh.state).stdout)["tools"]
    assert [each["tool"]["name"] for each in listed] == ["tools/core.arithmetic", "tools/core.echo"]


@pytest.mark.usefixtures("deferred")
def test_a_deferred_tool_is_found_loaded_and_only_then_called(mesh: Mesh) -> None:
    refused = rpc_outcome(mesh)
    assert refused["error_class"] == "schema_not_loaded"
    assert refused["metadata"]["selection_ref"] == VERSION
    assert refused["metadata"]["load_with"].endswith("/GetToolSchemas")

    with mesh.edge_channel() as channel:
        metadata = [("authorization", f"Bearer {mesh.token()}")]
        discovery = rpc.DiscoveryServiceStub(channel)
        found = discovery.SearchTools(
            pb.SearchToolsRequest(query="work out what two numbers come to"),
            metadata=metadata,  # type: ignore[arg-type]
            timeout=20,  # type: ignore[arg-type]
        )
        ref = next(tool.ref for tool in found.tools if tool.tool == "tools/core.arithmetic")
        assert ref.reason == pb.SURFACE_REASON_DEFERRED_UNTIL_DISCOVERED
        loaded = discovery.GetToolSchemas(
            pb.GetToolSchemasRequest(tools=[ref.selection_ref]),
            metadata=metadata,  # type: ignore[arg-type]
            timeout=20,  # type: ignore[arg-type]
        ).schemas[0]
        assert b"expression" in loaded.input_schema
        arguments = json.dumps(ARGUMENTS).encode()
        with pytest.raises(grpc.RpcError) as caught:
            invoke(channel, "arithmetic", arguments, token=mesh.token(), request={"tool_digest": "sha256:" + "0" * 64})
        assert reason_of(caught.value) == error_reason_pb2.ERROR_REASON_SCHEMA_NOT_LOADED
        answer = invoke(channel, "arithmetic", arguments, token=mesh.token(), request={"tool_digest": loaded.digest})
        assert json.loads(answer.result.structured_content)["result"] == 42
    assert rpc_outcome(mesh, tool_digest=loaded.digest)["structured_content"]["result"] == 42


def reason_of(error: Any) -> int:
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    envelope = error_reason_pb2.ErrorEnvelope()
    assert any(detail.Unpack(envelope) for detail in status.details)
    return int(envelope.reason)


def test_a_person_searches_and_sees_a_surface_within_its_budget(mesh: Mesh) -> None:
    found = json.loads(cli("tools", "search", "say it back to me", "--json", state=mesh.state).stdout)
    assert found["tools"][0]["tool"] == "tools/core.echo"
    surface = json.loads(
        cli("tools", "surface", "repeat a text", "--budget", "300", "--json", state=mesh.state).stdout
    )["surface"]
    assert surface["token_count"] <= 300
    assert "tools/core.echo" in surface["tool_refs"]
    tight = cli("tools", "surface", "repeat a text", "--budget", "2", state=mesh.state, check=False)
    assert tight.returncode == 1


def test_a_language_process_that_is_killed_is_simply_started_again(mesh: Mesh) -> None:
    cli("tools", "search", "say it back to me", state=mesh.state)
    registry = int(mesh.part("registry")["pid"])
    children = _children(registry)
    assert children
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    found = json.loads(cli("tools", "search", "another question for the model", "--json", state=mesh.state).stdout)
    assert found["semantic_use"]
    again = json.loads(cli("tools", "search", "yet another question", "--json", state=mesh.state).stdout)
    assert again["semantic_use"] in ("complete", "partial")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
