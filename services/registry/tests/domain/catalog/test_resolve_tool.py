"""ResolveTool through the real server; the choice of the version is tested in test_resolve."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import tool_version_pb2

from libs.common.errors import Reason
from services.registry.tests.calls import refusal
from services.registry.tests.conftest import Replica
from services.registry.tests.manifests import reader

DEPRECATION = (
    '{"deprecate_time": "2026-01-01T00:00:00+00:00", "sunset_time": %s, '
    '"successor": "tools/acme.find_order/versions/2.0.0", "migration_guide_url": "https://acme.example/move"}'
)


async def stand(engine: AsyncEngine, state: str, sunset: str = "null") -> None:
    """Set the state of every version, as a lifecycle verb would."""
    async with engine.begin() as connection:
        await connection.execute(
            text("update tool_versions set state = :state, deprecation = cast(:deprecation as jsonb)"),
            {"state": state, "deprecation": DEPRECATION % sunset},
        )


def resolve(stub: Any, tool: str, constraint: str = "") -> Any:
    return stub.ResolveTool(pb.ResolveToolRequest(tool=tool, version_constraint=constraint))


@pytest.fixture
async def stub(registry: Replica) -> Any:
    stub = registry.stub("executor")
    for version in ("1.0.0", "1.1.0", "2.0.0-rc.1"):
        await registry.stub().RegisterTool(pb.RegisterToolRequest(manifest=reader(version=version, aliases=["seek"])))
    return stub


async def test_a_reference_resolves_to_one_version_and_its_digest(stub: Any) -> None:
    version = (await resolve(stub, "acme.find_order", "^1.0")).version
    assert version.name == "tools/acme.find_order/versions/1.1.0"
    assert version.digest.startswith("sha256:")
    assert version.manifest.version == "1.1.0"
    assert (await resolve(stub, "tools/acme.seek", "1.0.x")).version.manifest.version == "1.0.0"
    assert (await resolve(stub, "acme.find_order", "2.0.0-rc.1")).version.manifest.version == "2.0.0-rc.1"


async def test_what_cannot_be_resolved_says_why(stub: Any) -> None:
    assert (await refusal(resolve(stub, "acme.nothing"))).reason is Reason.TOOL_NOT_FOUND
    assert (await refusal(resolve(stub, "acme.find_order", "^3"))).reason is Reason.TOOL_VERSION_NOT_FOUND
    assert (await refusal(resolve(stub, "acme.find_order", "??"))).reason is Reason.INVALID_REQUEST


async def test_a_deprecated_version_comes_with_its_notice(stub: Any, engine: AsyncEngine) -> None:
    await stand(engine, "deprecated", '"2999-01-01T00:00:00+00:00"')
    version = (await resolve(stub, "acme.find_order")).version
    assert version.state == tool_version_pb2.LIFECYCLE_STATE_DEPRECATED
    assert version.deprecation.successor == "tools/acme.find_order/versions/2.0.0"
    assert version.deprecation.sunset_time.ToDatetime().year == 2999


async def test_past_the_sunset_the_successor_is_named(stub: Any, engine: AsyncEngine) -> None:
    await stand(engine, "deprecated", '"2026-01-02T00:00:00+00:00"')
    error = await refusal(resolve(stub, "acme.find_order"))
    assert error.reason is Reason.TOOL_DEPRECATED
    assert error.metadata["successor"] == "tools/acme.find_order/versions/2.0.0"


@pytest.mark.parametrize("state", ["draft", "disabled", "requires_setup", "quarantined"])
async def test_what_may_not_run_is_unavailable(stub: Any, engine: AsyncEngine, state: str) -> None:
    await stand(engine, state)
    error = await refusal(resolve(stub, "acme.find_order", "1.0.0"))
    assert error.reason is Reason.TOOL_UNAVAILABLE
    assert error.metadata["state"] == state
