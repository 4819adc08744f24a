"""GetTool through the real server."""

from __future__ import annotations

from typing import Any

import pytest
from toolmesh.registry.v1 import registry_service_pb2 as pb

from libs.common.errors import Reason
from services.registry.tests.calls import PATIENCE, bearer, refusal
from services.registry.tests.conftest import Replica
from services.registry.tests.manifests import reader


async def register(stub: Any, *manifests: Any) -> list[Any]:
    return [(await stub.RegisterTool(pb.RegisterToolRequest(manifest=m), timeout=PATIENCE)).version for m in manifests]


async def test_a_tool_comes_with_all_its_versions_the_highest_first(registry: Replica) -> None:
    stub = registry.stub()
    numbers = ["1.9.0", "1.10.0", "2.0.0-rc.1", "1.2.0"]
    stored = await register(stub, *(reader(version=n, title=f"Title of {n}") for n in numbers))
    found = await stub.GetTool(pb.GetToolRequest(name="acme.find_order"))
    assert [v.manifest.version for v in found.versions] == ["2.0.0-rc.1", "1.10.0", "1.9.0", "1.2.0"]
    assert found.versions[1] == stored[1]
    assert found.tool.latest_version == "1.10.0"
    assert found.tool.title == "Title of 1.10.0"
    assert found.tool.create_time == stored[0].create_time
    assert found.tool.update_time == stored[-1].update_time


async def test_a_tool_without_a_namespace_is_one_of_the_mesh(registry: Replica) -> None:
    stub = registry.stub("executor")
    await register(stub, reader("core.echo"))
    for name in ("echo", "core.echo", "tools/core.echo"):
        assert (await stub.GetTool(pb.GetToolRequest(name=name))).tool.namespace == "core"


@pytest.mark.parametrize("name", ["acme.no_such_tool", "Not A Name", "acme.find_order/versions/1.0.0", "a\0b"])
async def test_what_is_not_there_is_not_found(registry: Replica, name: str) -> None:
    error = await refusal(registry.stub().GetTool(pb.GetToolRequest(name=name)))
    assert error.reason is Reason.TOOL_NOT_FOUND


async def test_old_versions_without_room_come_without_their_manifests(registry: Replica) -> None:
    stub = registry.stub()
    bulk = {str(n): "x" * 60_000 for n in range(15)}
    await register(stub, *(reader(version=f"1.{n}.0", annotations=bulk) for n in range(6)))
    found = await stub.GetTool(pb.GetToolRequest(name="acme.find_order"))
    assert [v.HasField("manifest") for v in found.versions] == [True, True, False, False, False, False]
    last = found.versions[-1]
    assert last.name == "tools/acme.find_order/versions/1.0.0"
    exact = await stub.ResolveTool(pb.ResolveToolRequest(tool="acme.find_order", version_constraint="1.0.0"))
    assert exact.version.digest == last.digest
    assert exact.version.HasField("manifest")


async def test_readers_are_services_the_operator_and_callers_with_the_scope(registry: Replica, signer: Any) -> None:
    await register(registry.stub(), reader())
    request = pb.GetToolRequest(name="acme.find_order")
    for peer in ("operator", "executor", "approval", "audit", "authz"):
        assert (await registry.stub(peer).GetTool(request)).tool.name == "tools/acme.find_order"
    for peer in ("edge", "orchestrator", "gateway"):
        stub = registry.stub(peer)
        assert (await refusal(stub.GetTool(request))).reason is Reason.UNAUTHENTICATED
        without = await refusal(stub.GetTool(request, metadata=bearer(signer.mint(scope="tools:call"))))
        assert without.reason is Reason.SCOPE_MISSING
        await stub.GetTool(request, metadata=bearer(signer.mint(scope="tools:read")))
