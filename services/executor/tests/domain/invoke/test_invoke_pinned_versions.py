"""Who calls a deferred tool must know its schema, and who pins a version gets that one or none."""

from __future__ import annotations

import pytest
from toolmesh.registry.v1 import tool_version_pb2 as vpb

from libs.common.errors import MeshError, Reason
from services.executor.adapters.registry.compile_tool import compile_version
from services.executor.tests.fakes import World
from services.executor.tests.peers import registered
from services.executor.tests.samples import a_manifest, a_request, a_tool

OTHER = "sha256:" + "0" * 64


async def refused(world: World, digest: str) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await world.invoke.execute(a_request(tool_digest=digest))
    assert "ran" not in world.trail.steps
    return caught.value


@pytest.mark.parametrize("digest", ["", OTHER])
async def test_a_deferred_tool_whose_schema_was_not_loaded_is_refused_with_the_way_to_load_it(digest: str) -> None:
    world = World(a_tool(deferred=True))
    error = await refused(world, digest)
    assert error.reason is Reason.SCHEMA_NOT_LOADED
    assert error.metadata["selection_ref"] == a_tool().name
    assert error.metadata["load_with"].endswith("DiscoveryService/GetToolSchemas")


async def test_a_deferred_tool_runs_for_callers_that_know_its_digest() -> None:
    world = World(a_tool(deferred=True))
    await world.invoke.execute(a_request(tool_digest=a_tool().digest))
    assert "ran" in world.trail.steps


async def test_a_pin_on_any_other_tool_is_kept_too() -> None:
    assert (await refused(World(), OTHER)).reason is Reason.ETAG_MISMATCH
    await World().invoke.execute(a_request(tool_digest=a_tool().digest))


def test_deferral_comes_and_goes_with_the_state() -> None:
    version = registered(a_manifest())
    version.state = vpb.LIFECYCLE_STATE_DEFERRED
    deferred = compile_version(version)
    assert deferred.tool is not None
    assert deferred.tool.deferred
    version.state = vpb.LIFECYCLE_STATE_AVAILABLE
    loaded = compile_version(version, deferred)
    assert loaded.tool is not None
    assert not loaded.tool.deferred
