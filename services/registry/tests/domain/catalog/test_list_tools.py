"""ListTools through the real server."""

from __future__ import annotations

import asyncio
from typing import Any

from toolmesh.registry.v1 import registry_service_pb2 as pb

from libs.common import page_tokens
from libs.common.errors import Reason
from services.registry.tests.calls import PATIENCE, bearer, refusal
from services.registry.tests.conftest import Replica
from services.registry.tests.manifests import reader


async def register(stub: Any, *manifests: Any) -> None:
    # A registry on a busy machine refuses what it cannot begin in time.
    free = asyncio.Semaphore(4)

    async def one(manifest: Any) -> None:
        async with free:
            await stub.RegisterTool(pb.RegisterToolRequest(manifest=manifest), timeout=PATIENCE)

    await asyncio.gather(*map(one, manifests))


async def pages(stub: Any, **query: Any) -> list[list[Any]]:
    found, token = [], ""
    while True:
        page = await stub.ListTools(pb.ListToolsRequest(page_token=token, **query))
        found.append(list(page.tools))
        token = page.next_page_token
        if not token:
            return found


def names(listing: list[list[Any]]) -> list[str]:
    return [item.tool.name.removeprefix("tools/") for page in listing for item in page]


async def test_pages_hold_every_tool_once_in_order_of_names(registry: Replica) -> None:
    stub = registry.stub()
    made = ["bb.tool_a", "acme.tool_c", "acme-eu.tool_z", "acme.tool_a", "zz.tool_b", "acme.tool_b", "core.echo"]
    await register(stub, *(reader(name) for name in made))
    listing = await pages(stub, page_size=3)
    assert [len(page) for page in listing] == [3, 3, 1]
    assert names(listing) == sorted(made)
    assert names(await pages(stub)) == sorted(made)
    assert names(await pages(stub, page_size=7)) == sorted(made)


async def test_a_caller_may_ask_for_what_it_may_use_and_no_more(registry: Replica, signer: Any) -> None:
    stub = registry.stub()
    made = [reader(f"acme.tool_{letter}", tags=["barred"] if letter in "bcd" else []) for letter in "abcde"]
    await register(stub, *made)
    metadata = bearer(signer.mint("did:web:ann", scope="tools:read"))
    found, token = [], ""
    while True:
        request = pb.ListToolsRequest(page_size=2, page_token=token, usable_only=True)
        page = await registry.stub("gateway").ListTools(request, metadata=metadata)
        found.append(list(page.tools))
        token = page.next_page_token
        if not token:
            break
    assert [names([each]) for each in found] == [["acme.tool_a"], [], ["acme.tool_e"]]
    everything = await registry.stub("gateway").ListTools(pb.ListToolsRequest(), metadata=metadata)
    assert len(everything.tools) == len(made)


async def test_a_usable_tool_is_listed_with_the_version_that_the_token_grants(registry: Replica, signer: Any) -> None:
    await register(registry.stub(), reader("acme.find_order"), reader("acme.find_order", "2.0.0"))
    token = signer.mint("did:web:ann", scope="tools:read", tools=[{"tool": "acme.*", "version": "^1"}])
    request = pb.ListToolsRequest(usable_only=True)
    page = await registry.stub("gateway").ListTools(request, metadata=bearer(token))
    assert [tool.version.name for tool in page.tools] == ["tools/acme.find_order/versions/1.0.0"]


async def test_usable_only_needs_a_caller(registry: Replica) -> None:
    error = await refusal(registry.stub().ListTools(pb.ListToolsRequest(usable_only=True)))
    assert error.reason is Reason.INVALID_REQUEST
    assert [each.path for each in error.violations] == ["usable_only"]


async def test_an_empty_registry_has_one_empty_page(registry: Replica) -> None:
    assert await pages(registry.stub()) == [[]]


async def test_listings_are_filtered_by_namespace_and_all_tags(registry: Replica) -> None:
    stub = registry.stub()
    await register(
        stub,
        reader("acme.tool_a", tags=["red"]),
        reader("acme.tool_b", tags=["red", "blue"]),
        reader("beta.tool_c", tags=["red", "blue"]),
    )
    assert names(await pages(stub, namespace="acme")) == ["acme.tool_a", "acme.tool_b"]
    assert names(await pages(stub, tags=["blue", "red"])) == ["acme.tool_b", "beta.tool_c"]
    assert names(await pages(stub, namespace="acme", tags=["blue"])) == ["acme.tool_b"]
    assert names(await pages(stub, tags=["green"])) == []
    assert names(await pages(stub, tags=["re\0d"])) == []


async def test_tags_are_those_of_the_latest_version(registry: Replica) -> None:
    stub = registry.stub()
    await register(stub, reader(version="2.0.0", tags=["new"]))
    await register(stub, reader(version="1.0.0", tags=["old"]), reader(version="3.0.0-rc.1", tags=["future"]))
    assert names(await pages(stub, tags=["new"])) == ["acme.find_order"]
    assert names(await pages(stub, tags=["old"])) == []
    assert names(await pages(stub, tags=["future"])) == []


async def test_each_tool_comes_with_what_latest_means(registry: Replica) -> None:
    stub = registry.stub()
    await register(stub, reader("acme.tool_a", "1.2.0"), reader("acme.tool_a", "1.10.0"))
    await register(stub, reader("acme.tool_b", "1.0.0-rc.1"))
    [[first, second]] = await pages(stub)
    resolved = await stub.ResolveTool(pb.ResolveToolRequest(tool="acme.tool_a"))
    for version in (first.version, resolved.version):
        version.ClearField("trust")
    assert first.version == resolved.version
    assert first.tool.latest_version == "1.10.0"
    assert not second.HasField("version")
    assert second.tool.latest_version == ""


async def test_pages_stay_within_a_message_when_manifests_are_large(registry: Replica) -> None:
    stub = registry.stub()
    bulk = {str(n): "x" * 60_000 for n in range(15)}
    made = [f"acme.tool_{n}" for n in range(6)]
    await register(stub, *(reader(name, annotations=bulk) for name in made))
    listing = await pages(stub, page_size=1000)
    assert names(listing) == made
    assert len(listing) == 3


async def test_pages_are_stable_while_tools_are_registered(registry: Replica) -> None:
    stub = registry.stub()
    await register(stub, *(reader(f"acme.tool_{n}") for n in (1, 3, 5, 7)))
    first = await stub.ListTools(pb.ListToolsRequest(page_size=2))
    await register(stub, reader("acme.tool_0"), reader("acme.tool_6"))
    second = await stub.ListTools(pb.ListToolsRequest(page_size=9, page_token=first.next_page_token))
    assert names([list(first.tools), list(second.tools)]) == [f"acme.tool_{n}" for n in (1, 3, 5, 6, 7)]


async def test_a_page_token_continues_only_its_own_query(registry: Replica) -> None:
    stub = registry.stub()
    await register(stub, *(reader(f"acme.tool_{n}") for n in range(3)))
    token = (await stub.ListTools(pb.ListToolsRequest(page_size=1, namespace="acme"))).next_page_token
    forged = page_tokens.encode(["ListTools", "acme", []], [7])
    for request in (
        pb.ListToolsRequest(page_token=token),
        pb.ListToolsRequest(page_token=token, namespace="beta"),
        pb.ListToolsRequest(page_token=token, namespace="acme", tags=["red"]),
        pb.ListToolsRequest(page_token="nonsense", namespace="acme"),
        pb.ListToolsRequest(page_token=forged, namespace="acme"),
    ):
        assert (await refusal(stub.ListTools(request))).reason is Reason.PAGE_TOKEN_INVALID
    # The page size is not part of the query.
    assert await stub.ListTools(pb.ListToolsRequest(page_token=token, namespace="acme", page_size=9))
