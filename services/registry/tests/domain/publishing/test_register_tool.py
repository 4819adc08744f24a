"""RegisterTool through the real server: storage, refusals and concurrency."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import tool_version_pb2

from libs.common.errors import Reason
from services.registry.tests.calls import PATIENCE, bearer, refusal
from services.registry.tests.conftest import Replica, Start
from services.registry.tests.manifests import reader, writer


def register(stub: Any, manifest: Any, token: str = "") -> Any:
    return stub.RegisterTool(
        pb.RegisterToolRequest(manifest=manifest), metadata=bearer(token) if token else None, timeout=PATIENCE
    )


async def test_an_admitted_version_is_answered_as_stored(registry: Replica) -> None:
    manifest = writer()
    answer = await register(registry.stub("operator"), manifest)
    version = answer.version
    assert answer.created
    assert version.name == "tools/acme.cancel_order/versions/1.0.0"
    assert version.manifest == manifest
    assert version.digest.startswith("sha256:")
    assert len(version.digest) == 71
    assert version.state == tool_version_pb2.LIFECYCLE_STATE_AVAILABLE
    assert version.registered_by == "operator"
    assert version.etag
    assert version.create_time == version.update_time
    assert not version.HasField("deprecation")


async def test_the_same_content_again_answers_the_stored_version(registry: Replica) -> None:
    stub = registry.stub()
    first = await register(stub, reader())
    rewritten = reader()
    rewritten.input.schema = json.dumps(json.loads(rewritten.input.schema), indent=2, sort_keys=True).encode()
    again = await register(stub, rewritten)
    assert not again.created
    for version in (first.version, again.version):
        version.ClearField("trust")
    assert again.version == first.version


async def test_other_content_under_the_same_number_is_refused_and_changes_nothing(registry: Replica) -> None:
    stub = registry.stub()
    first = await register(stub, reader())
    error = await refusal(register(stub, reader(changelog="not what it was")))
    assert error.reason is Reason.TOOL_VERSION_CONFLICT
    assert error.metadata["digest"] == first.version.digest
    stored = await stub.GetTool(pb.GetToolRequest(name="acme.find_order"))
    assert list(stored.versions) == [first.version]


async def test_a_version_that_differs_only_in_its_build_has_the_same_number(registry: Replica) -> None:
    stub = registry.stub()
    await register(stub, reader(version="1.0.0+linux"))
    error = await refusal(register(stub, reader(version="1.0.0+other")))
    assert error.reason is Reason.TOOL_VERSION_CONFLICT


async def test_a_refused_manifest_gets_all_violations_and_is_not_stored(registry: Replica) -> None:
    stub = registry.stub()
    manifest = writer()
    manifest.ClearField("side_effects")
    manifest.permission.ClearField("required_scopes")
    error = await refusal(register(stub, manifest))
    assert error.reason is Reason.TOOL_MANIFEST_INVALID
    assert {violation.path for violation in error.violations} == {
        "manifest.side_effects",
        "manifest.permission.required_scopes",
    }
    absent = await refusal(stub.GetTool(pb.GetToolRequest(name="acme.cancel_order")))
    assert absent.reason is Reason.TOOL_NOT_FOUND


async def test_a_message_that_breaks_the_contracts_own_rules_is_refused_before_admission(registry: Replica) -> None:
    manifest = reader()
    manifest.ClearField("observability")
    error = await refusal(register(registry.stub(), manifest))
    assert error.reason is Reason.INVALID_REQUEST
    assert [violation.path for violation in error.violations] == ["manifest.observability"]


async def test_a_name_belongs_to_the_provider_of_its_first_version(registry: Replica) -> None:
    stub = registry.stub()
    await register(stub, reader())
    error = await refusal(register(stub, reader(version="2.0.0", provider="mallory")))
    assert error.reason is Reason.ALREADY_EXISTS
    assert error.metadata["provider"] == "acme"
    assert (await register(stub, reader(version="2.0.0"))).created


async def test_the_tools_of_a_namespace_belong_to_one_provider(registry: Replica) -> None:
    stub = registry.stub()
    await register(stub, reader())
    error = await refusal(register(stub, reader("acme.other_tool", provider="mallory")))
    assert error.reason is Reason.ALREADY_EXISTS


async def test_a_name_leads_to_one_tool(registry: Replica) -> None:
    stub = registry.stub()
    await register(stub, reader(aliases=["seek_order"]))
    as_name = await refusal(register(stub, reader("acme.seek_order")))
    as_alias = await refusal(register(stub, reader("acme.third_tool", aliases=["seek_order"])))
    of_name = await refusal(register(stub, reader("acme.fourth_tool", aliases=["find_order"])))
    assert {e.reason for e in (as_name, as_alias, of_name)} == {Reason.ALREADY_EXISTS}
    assert (await register(stub, reader(version="1.1.0", aliases=["seek_order", "look_up"]))).created
    for name in ("acme.seek_order", "tools/acme.look_up"):
        found = await stub.GetTool(pb.GetToolRequest(name=name))
        assert found.tool.name == "tools/acme.find_order"
        assert list(found.tool.aliases) == ["look_up", "seek_order"]


@pytest.mark.parametrize("peer", ["operator", "executor"])
async def test_the_mesh_itself_registers_in_its_own_namespace(registry: Replica, peer: str) -> None:
    answer = await register(registry.stub(peer), reader("core.echo"))
    assert answer.version.registered_by == peer


async def test_the_core_namespace_is_reserved(registry: Replica, signer: Any) -> None:
    token = signer.mint(scope="tools:register tools:read")
    for peer in ("edge", "orchestrator", "gateway"):
        error = await refusal(register(registry.stub(peer), reader("core.echo"), token))
        assert error.reason is Reason.PERMISSION_DENIED
    absent = await refusal(registry.stub().GetTool(pb.GetToolRequest(name="echo")))
    assert absent.reason is Reason.TOOL_NOT_FOUND


async def test_a_caller_needs_the_scope_and_is_remembered(registry: Replica, signer: Any) -> None:
    stub = registry.stub("edge")
    assert (await refusal(register(stub, reader()))).reason is Reason.UNAUTHENTICATED
    without = await refusal(register(stub, reader(), signer.mint(scope="tools:read")))
    assert without.reason is Reason.SCOPE_MISSING
    answer = await register(stub, reader(), signer.mint("did:web:acme.example:users:bob", scope="tools:register"))
    assert answer.version.registered_by == "did:web:acme.example:users:bob"


@pytest.mark.parametrize("peer", ["audit", "approval", "authz", "registry"])
async def test_a_peer_without_a_row_may_not_register(registry: Replica, peer: str) -> None:
    error = await refusal(register(registry.stub(peer), reader()))
    assert error.reason is Reason.PEER_NOT_ALLOWED


async def test_of_concurrent_registrations_at_two_replicas_exactly_one_creates(start: Start) -> None:
    stubs = [(await start()).stub(), (await start()).stub()]
    answers = await asyncio.gather(*(register(stubs[n % 2], reader()) for n in range(16)))
    assert sum(answer.created for answer in answers) == 1
    for answer in answers:
        # Each replica says what it knows of executors at present.
        answer.version.ClearField("health")
    assert len({answer.version.SerializeToString(deterministic=True) for answer in answers}) == 1


async def test_of_concurrent_contents_for_one_number_exactly_one_wins(start: Start) -> None:
    stubs = [(await start()).stub(), (await start()).stub()]
    calls = [register(stubs[n % 2], reader(changelog=f"content {n}")) for n in range(12)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    created = [answer for answer in answers if isinstance(answer, pb.RegisterToolResponse)]
    refused = [(await refusal(call)).reason for call in calls if not await _succeeded(call)]
    assert len(created) == 1
    assert refused == [Reason.TOOL_VERSION_CONFLICT] * 11


async def test_of_concurrent_providers_of_one_namespace_exactly_one_owns_it(start: Start) -> None:
    stubs = [(await start()).stub(), (await start()).stub()]
    calls = [register(stubs[n % 2], reader(f"acme.tool_{n}", provider=f"provider {n}")) for n in range(8)]
    await asyncio.gather(*calls, return_exceptions=True)
    assert sum([await _succeeded(call) for call in calls]) == 1
    listing = await stubs[0].ListTools(pb.ListToolsRequest(namespace="acme"))
    assert len(listing.tools) == 1


async def _succeeded(call: Any) -> bool:
    return bool((await call.code()).name == "OK")
