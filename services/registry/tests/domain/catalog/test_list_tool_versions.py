"""ListToolVersions through the real server."""

from __future__ import annotations

from typing import Any

from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import tool_version_pb2 as vpb

from libs.common.errors import Reason
from services.registry.tests.calls import PATIENCE, refusal
from services.registry.tests.conftest import Replica
from services.registry.tests.manifests import reader

NUMBERS = ["1.0.0", "1.0.0-rc.1", "1.9.0", "1.10.0", "2.0.0"]


async def fill(stub: Any, numbers: list[str]) -> None:
    for number in numbers:
        await stub.RegisterTool(pb.RegisterToolRequest(manifest=reader(version=number)), timeout=PATIENCE)


async def listed(stub: Any, **request: Any) -> tuple[list[str], str]:
    asked = pb.ListToolVersionsRequest(tool="acme.find_order", **request)
    answer = await stub.ListToolVersions(asked, timeout=PATIENCE)
    assert all(version.digest and version.state and not version.HasField("manifest") for version in answer.versions)
    return [version.name.rpartition("/")[2] for version in answer.versions], answer.next_page_token


async def test_the_highest_comes_first_page_by_page(registry: Replica) -> None:
    stub = registry.stub()
    await fill(stub, NUMBERS)
    expected = ["2.0.0", "1.10.0", "1.9.0", "1.0.0", "1.0.0-rc.1"]
    assert await listed(stub) == (expected, "")
    first, token = await listed(stub, page_size=2)
    # Versions that are registered in the meantime do not shift the following pages.
    await fill(stub, ["3.0.0"])
    second, token = await listed(stub, page_size=2, page_token=token)
    third, end = await listed(stub, page_size=2, page_token=token)
    assert (first + second + third, end) == (expected, "")


async def test_only_the_states_asked_for(registry: Replica) -> None:
    stub = registry.stub()
    await fill(stub, ["1.0.0"])
    assert await listed(stub, states=[vpb.LIFECYCLE_STATE_AVAILABLE]) == (["1.0.0"], "")
    assert await listed(stub, states=[vpb.LIFECYCLE_STATE_SUNSET, vpb.LIFECYCLE_STATE_DRAFT]) == ([], "")


async def test_a_token_continues_its_own_query_only(registry: Replica) -> None:
    stub = registry.stub()
    await fill(stub, NUMBERS)
    _, token = await listed(stub, page_size=1)
    for request in (
        pb.ListToolVersionsRequest(tool="acme.find_order", page_token=token, states=[vpb.LIFECYCLE_STATE_DRAFT]),
        pb.ListToolVersionsRequest(tool="acme.find_order", page_token="nonsense"),
    ):
        error = await refusal(stub.ListToolVersions(request, timeout=PATIENCE))
        assert error.reason is Reason.PAGE_TOKEN_INVALID


async def test_no_such_tool(registry: Replica) -> None:
    request = pb.ListToolVersionsRequest(tool="acme.nothing")
    error = await refusal(registry.stub().ListToolVersions(request, timeout=PATIENCE))
    assert error.reason is Reason.TOOL_NOT_FOUND
