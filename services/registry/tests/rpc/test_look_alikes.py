"""Names that look alike, through the real server: readers of both tools see it, and both cannot slip in at once."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import grpc.aio
import pytest
from toolmesh.registry.v1 import discovery_service_pb2 as discovery_pb
from toolmesh.registry.v1 import discovery_service_pb2_grpc as discovery_rpc
from toolmesh.registry.v1 import namespace_service_pb2 as namespace_pb
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import trust_service_pb2 as trust_pb
from toolmesh.registry.v1.tool_trust_pb2 import LookAlike

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from services.registry import wiring
from services.registry.adapters.trust.scores import CachedTrustScores
from services.registry.tests.calls import PATIENCE, bearer
from services.registry.tests.conftest import Replica
from services.registry.tests.manifests import reader
from services.registry.tests.polling import until
from services.registry.tests.service_stubs import namespaces, trust

OWNERS = {"acme": "did:web:acme.example", "globex": "did:web:globex.example"}
OLDER, NEWER = "tools/globex.send_email", "tools/acme.send_emails"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refresh what is kept in memory often, because the tests wait for it."""
    monkeypatch.setattr(wiring, "CachedTrustScores", partial(CachedTrustScores, interval=0.05))


async def register(replica: Replica, signer: Any, name: str) -> Any:
    namespace = name.partition(".")[0]
    token = signer.mint(OWNERS[namespace], scope="tools:register")
    request = pb.RegisterToolRequest(manifest=reader(name, provider=namespace))
    return await replica.stub("edge").RegisterTool(request, metadata=bearer(token), timeout=PATIENCE)


async def shown(replica: Replica, name: str) -> list[LookAlike]:
    tool = await replica.stub().GetTool(pb.GetToolRequest(name=name), timeout=PATIENCE)
    return list(tool.versions[0].trust.look_alikes)


async def test_readers_of_both_tools_see_the_other_until_one_is_revoked(registry: Replica, signer: Any) -> None:
    await register(registry, signer, "globex.send_email")
    assert (await register(registry, signer, "acme.send_emails")).warnings
    older = LookAlike(name=OLDER, kind="lookalike", older=True)
    newer = LookAlike(name=NEWER, kind="lookalike")
    assert await until(lambda: shown(registry, NEWER), bool) == [older]
    assert await until(lambda: shown(registry, OLDER), bool) == [newer]
    listed = (await registry.stub().ListTools(pb.ListToolsRequest(), timeout=PATIENCE)).tools
    assert {each.tool.name: list(each.version.trust.look_alikes) for each in listed} == {OLDER: [newer], NEWER: [older]}
    discovery = registry.stub("operator", discovery_rpc.DiscoveryServiceStub)
    search = discovery_pb.SearchToolsRequest(names=["acme.send_emails"])
    [found] = (await discovery.SearchTools(search, timeout=PATIENCE)).tools
    assert list(found.look_alikes) == [older]
    wanted = discovery_pb.GetToolSchemasRequest(tools=["globex.send_email"])
    [schema] = (await discovery.GetToolSchemas(wanted, timeout=PATIENCE)).schemas
    assert list(schema.look_alikes) == [newer]
    assert "acme.send_emails" in schema.block.text
    revoked = trust_pb.RevokeToolRequest(name="acme.send_emails", reason="squats")
    await trust(registry).RevokeTool(revoked, timeout=PATIENCE)
    await until(lambda: shown(registry, OLDER), lambda alike: not alike)


async def test_names_of_one_owner_do_not_warn(registry: Replica, signer: Any) -> None:
    await register(registry, signer, "globex.send_email")
    await register(registry, signer, "acme.send_emails")
    await until(lambda: shown(registry, OLDER), bool)
    transfer = namespace_pb.TransferNamespaceRequest(name="namespaces/acme", owner=OWNERS["globex"], provider="globex")
    await namespaces(registry).TransferNamespace(transfer, timeout=PATIENCE)
    await until(lambda: shown(registry, OLDER), lambda alike: not alike)


async def test_of_two_names_that_look_the_same_and_come_at_once_one_is_refused(registry: Replica, signer: Any) -> None:
    for letter in "abcde":
        names = (f"globex.{letter * 6}_lines", f"acme.{letter * 6}_1ines")
        answers = await asyncio.gather(*(outcome(registry, signer, name) for name in names))
        refused = [answer for answer in answers if isinstance(answer, MeshError)]
        assert [(error.reason, [violation.rule for violation in error.violations]) for error in refused] == [
            (Reason.TOOL_MANIFEST_INVALID, ["scan.homoglyph"])
        ]


async def outcome(replica: Replica, signer: Any, name: str) -> Any:
    try:
        return await register(replica, signer, name)
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)
