"""Namespace ownership and aliases through the real server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from toolmesh.registry.v1 import lifecycle_service_pb2 as lifecycle_pb
from toolmesh.registry.v1 import namespace_service_pb2 as pb
from toolmesh.registry.v1 import registry_service_pb2 as registry_pb

from libs.common.errors import Reason
from services.registry.tests.calls import PATIENCE, bearer, refusal
from services.registry.tests.conftest import Replica, Start
from services.registry.tests.manifests import reader
from services.registry.tests.service_stubs import lifecycle, namespaces, register
from services.registry.tests.watch_client import WatchClient, complete

ANN, BEN, EVE = (f"did:web:acme.example:users:{name}" for name in ("ann", "ben", "eve"))
ACME = "namespaces/acme"


@pytest.fixture
def tokens(signer: Any) -> Any:
    return lambda who: signer.mint(who, scope="tools:register tools:read tools:admin")


def publish(replica: Replica, manifest: Any, token: str) -> Any:
    return replica.stub("edge").RegisterTool(
        registry_pb.RegisterToolRequest(manifest=manifest), metadata=bearer(token), timeout=PATIENCE
    )


def call(stub: Any, verb: str, token: str = "", **fields: Any) -> Any:
    request = getattr(pb, f"{verb}Request")(**fields)
    return getattr(stub, verb)(request, metadata=bearer(token) if token else None, timeout=PATIENCE)


async def test_a_namespace_belongs_to_its_first_registrant_not_to_the_named_provider(
    registry: Replica, tokens: Any
) -> None:
    await publish(registry, reader(), tokens(ANN))
    found = (await call(namespaces(registry), "GetNamespace", name=ACME)).namespace
    assert (found.owner, found.provider, list(found.delegates)) == (ANN, "acme", [])
    for manifest in (reader(version="1.1.0"), reader("acme.other_tool"), reader("acme.third_tool", provider="eve")):
        error = await refusal(publish(registry, manifest, tokens(EVE)))
        assert (error.reason, error.metadata["owner"]) == (Reason.PERMISSION_DENIED, ANN)
    assert (await publish(registry, reader(version="1.1.0"), tokens(ANN))).created
    assert await register(registry, reader(version="1.2.0")), "the operator may"


async def test_delegates_publish_and_nothing_more(registry: Replica, tokens: Any) -> None:
    await publish(registry, reader(), tokens(ANN))
    edge = namespaces(registry, "edge")
    stranger = await refusal(call(edge, "AddDelegate", tokens(EVE), name=ACME, subject=EVE))
    assert stranger.reason is Reason.PERMISSION_DENIED
    added = (await call(edge, "AddDelegate", tokens(ANN), name=ACME, subject=BEN)).namespace
    assert list(added.delegates) == [BEN]
    again = (await call(edge, "AddDelegate", tokens(ANN), name=ACME, subject=BEN)).namespace
    assert again.etag == added.etag
    assert (await publish(registry, reader(version="1.1.0"), tokens(BEN))).created
    onward = await refusal(call(edge, "AddDelegate", tokens(BEN), name=ACME, subject=EVE))
    assert onward.reason is Reason.PERMISSION_DENIED
    await call(edge, "RemoveDelegate", tokens(ANN), name=ACME, subject=BEN)
    gone = await refusal(publish(registry, reader(version="1.2.0"), tokens(BEN)))
    assert gone.reason is Reason.PERMISSION_DENIED


async def test_a_transfer_drops_the_old_owner_and_delegates(registry: Replica, tokens: Any) -> None:
    await publish(registry, reader(), tokens(ANN))
    edge, operator = namespaces(registry, "edge"), namespaces(registry)
    before = (await call(edge, "AddDelegate", tokens(ANN), name=ACME, subject=EVE)).namespace
    not_hers = await refusal(call(edge, "TransferNamespace", tokens(ANN), name=ACME, owner=BEN))
    assert not_hers.reason is Reason.PEER_NOT_ALLOWED
    stale = await refusal(call(operator, "TransferNamespace", name=ACME, owner=BEN, etag="ffff"))
    assert stale.reason is Reason.ETAG_MISMATCH
    after = (await call(operator, "TransferNamespace", name=ACME, owner=BEN, etag=before.etag)).namespace
    assert (after.owner, list(after.delegates), after.provider) == (BEN, [], "acme")
    for who in (ANN, EVE):
        assert (
            await refusal(publish(registry, reader(version="1.1.0"), tokens(who)))
        ).reason is Reason.PERMISSION_DENIED
    assert (await publish(registry, reader(version="1.1.0"), tokens(BEN))).created


async def test_a_claimed_namespace_waits_for_its_owner(registry: Replica, tokens: Any) -> None:
    operator = namespaces(registry)
    claim = {"namespace": "acme", "owner": ANN, "provider": "acme"}
    first = (await call(operator, "ClaimNamespace", **claim)).namespace
    assert (await call(operator, "ClaimNamespace", **claim)).namespace == first
    taken = await refusal(call(operator, "ClaimNamespace", **(claim | {"owner": EVE})))
    assert taken.reason is Reason.ALREADY_EXISTS
    assert (await refusal(publish(registry, reader(), tokens(EVE)))).reason is Reason.PERMISSION_DENIED
    other = await refusal(publish(registry, reader(provider="not acme"), tokens(ANN)))
    assert other.reason is Reason.ALREADY_EXISTS
    assert (await publish(registry, reader(), tokens(ANN))).created
    reserved = await refusal(call(operator, "ClaimNamespace", **(claim | {"namespace": "core"})))
    assert reserved.reason is Reason.PERMISSION_DENIED


async def test_of_many_who_register_first_at_once_exactly_one_owns(start: Start, tokens: Any) -> None:
    replicas = [await start(), await start()]
    calls = [
        publish(replicas[n % 2], reader(f"acme.tool_{n}"), tokens(f"did:web:acme.example:users:u{n}")) for n in range(8)
    ]
    codes = await asyncio.gather(*(each.code() for each in calls))
    assert sorted(code.name for code in codes) == ["OK"] + ["PERMISSION_DENIED"] * 7


async def test_namespaces_are_listed_in_pages(registry: Replica) -> None:
    for name in ("beta", "acme", "core"):
        await register(registry, reader(f"{name}.find_order"))
    stub, seen, token = namespaces(registry), [], ""
    while True:
        page = await call(stub, "ListNamespaces", page_size=2, page_token=token)
        seen.append([each.name for each in page.namespaces])
        token = page.next_page_token
        if not token:
            break
    assert seen == [["namespaces/acme", "namespaces/beta"], ["namespaces/core"]]
    assert (await refusal(call(stub, "ListNamespaces", page_token="nonsense"))).reason is Reason.PAGE_TOKEN_INVALID
    assert (await refusal(call(stub, "GetNamespace", name="namespaces/nobody"))).reason is Reason.NOT_FOUND


async def test_an_alias_is_not_spelled_like_a_namespace_nor_a_namespace_like_a_name_of_the_mesh(
    registry: Replica,
) -> None:
    await register(registry, reader("beta.find_order"))
    error = await refusal(
        registry.stub().RegisterTool(registry_pb.RegisterToolRequest(manifest=reader(aliases=["beta"])))
    )
    assert (error.reason, error.metadata["namespace"]) == (Reason.ALREADY_EXISTS, "beta")
    await register(registry, reader("core.echo", aliases=["shout"]))
    for name in ("echo", "shout"):
        claimed = await refusal(call(namespaces(registry), "ClaimNamespace", namespace=name, owner=EVE, provider="eve"))
        published = await refusal(
            registry.stub().RegisterTool(registry_pb.RegisterToolRequest(manifest=reader(f"{name}.find_order")))
        )
        assert {claimed.reason, published.reason} == {Reason.ALREADY_EXISTS}


class TestMovingAnAlias:
    """An alias belongs to one tool, and only its owner moves it."""

    @pytest.fixture
    async def tools(self, registry: Replica, tokens: Any) -> Replica:
        await publish(registry, reader(aliases=["seek_order"]), tokens(ANN))
        await publish(registry, reader("acme.search_orders"), tokens(ANN))
        return registry

    def move(self, replica: Replica, token: str = "", **changes: str) -> Any:
        fields = {"alias": "acme.seek_order", "from_tool": "acme.find_order", "to_tool": "acme.search_orders"} | changes
        return call(namespaces(replica, "edge" if token else "operator"), "MoveAlias", token, **fields)

    async def led_to(self, replica: Replica, name: str = "acme.seek_order") -> str:
        return str((await replica.stub().GetTool(registry_pb.GetToolRequest(name=name))).tool.name)

    async def test_a_moved_alias_points_to_the_other_tool_at_once_and_watchers_see_it(
        self, tools: Replica, tokens: Any
    ) -> None:
        view = WatchClient()
        watch = view.open(tools.stub("executor"))
        await view.follow(watch, complete)
        old, new = "tools/acme.find_order/versions/1.0.0", "tools/acme.search_orders/versions/1.0.0"
        assert (view.aliases[old], view.aliases[new]) == (["seek_order"], [])
        answer = await self.move(tools, tokens(ANN))
        assert list(answer.tool.aliases) == ["seek_order"]
        assert await self.led_to(tools) == "tools/acme.search_orders"
        await view.follow(watch, lambda now: now.aliases == {old: [], new: ["seek_order"]})
        watch.cancel()
        assert (await self.move(tools, tokens(ANN))).tool == answer.tool

    async def test_a_new_version_does_not_move_an_alias_back(self, tools: Replica, tokens: Any) -> None:
        await self.move(tools, tokens(ANN))
        error = await refusal(publish(tools, reader(version="1.1.0", aliases=["seek_order"]), tokens(ANN)))
        assert (error.reason, error.metadata["tool"]) == (Reason.ALREADY_EXISTS, "acme.search_orders")
        assert (await publish(tools, reader(version="1.1.0"), tokens(ANN))).created
        assert await self.led_to(tools) == "tools/acme.search_orders"

    async def test_alias_moves_that_are_refused(self, tools: Replica, tokens: Any) -> None:
        await register(tools, reader("beta.find_order"))
        stranger = await refusal(self.move(tools, tokens(EVE)))
        own_name = await refusal(self.move(tools, alias="acme.find_order"))
        nothing = await refusal(self.move(tools, alias="acme.no_alias"))
        await register(tools, reader("acme.third_tool"))
        elsewhere = await refusal(self.move(tools, from_tool="acme.third_tool"))
        across = await refusal(self.move(tools, to_tool="beta.find_order"))
        no_tool = await refusal(self.move(tools, to_tool="acme.no_tool"))
        assert [e.reason for e in (stranger, own_name, nothing, elsewhere, across, no_tool)] == [
            Reason.PERMISSION_DENIED,
            Reason.NOT_FOUND,
            Reason.NOT_FOUND,
            Reason.FAILED_PRECONDITION,
            Reason.INVALID_REQUEST,
            Reason.TOOL_NOT_FOUND,
        ]
        assert await self.led_to(tools) == "tools/acme.find_order"

    async def test_the_alias_of_a_retired_tool_stays_until_it_is_moved(self, tools: Replica, tokens: Any) -> None:
        name = "tools/acme.find_order/versions/1.0.0"
        stub = lifecycle(tools)
        for verb in ("DeprecateVersion", "SunsetVersion"):
            await getattr(stub, verb)(getattr(lifecycle_pb, f"{verb}Request")(name=name, reason="over"))
        await stub.RemoveVersion(lifecycle_pb.RemoveVersionRequest(name=name, reason="over", force=True))
        taken = await refusal(publish(tools, reader("acme.new_tool", aliases=["seek_order"]), tokens(ANN)))
        as_name = await refusal(publish(tools, reader("acme.seek_order"), tokens(ANN)))
        assert {taken.reason, as_name.reason} == {Reason.ALREADY_EXISTS}
        gone = await refusal(tools.stub().ResolveTool(registry_pb.ResolveToolRequest(tool="acme.seek_order")))
        assert gone.reason is Reason.TOOL_DEPRECATED
        await self.move(tools, tokens(ANN))
        found = await tools.stub().ResolveTool(registry_pb.ResolveToolRequest(tool="acme.seek_order"))
        assert found.version.name == "tools/acme.search_orders/versions/1.0.0"
