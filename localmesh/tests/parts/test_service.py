"""A service starts once its schema is migrated, and says of itself what its readiness adds."""

from __future__ import annotations

import pytest

from libs.common.runtime.ops import OpsServer
from libs.common.runtime.settings import Address
from localmesh.parts.migrations import Migrations
from localmesh.parts.service import ServicePlan, service_part
from localmesh.ports import USUAL_PORTS
from localmesh.process.part import PartError
from localmesh.settings import Settings
from localmesh.state.pki import Pki
from localmesh.state.state import State

NOWHERE = "postgresql://audit_owner:secret-word@127.0.0.1:1/toolmesh"


async def test_a_service_waits_for_its_schema_and_fails_with_it(state: State) -> None:
    plan = ServicePlan("audit", (), migrations=Migrations({"audit": NOWHERE}))
    part = service_part(plan, USUAL_PORTS, Pki(state.pki), Settings())
    with pytest.raises(PartError) as caught:
        await part.initialize()
    assert caught.value.part == "audit"
    assert "secret-word" not in f"{caught.value}{part}"


async def test_a_service_without_a_database_migrates_nothing(state: State) -> None:
    part = service_part(ServicePlan("gateway", ()), USUAL_PORTS, Pki(state.pki), Settings())
    await part.initialize()


async def test_a_service_says_of_itself_what_its_readiness_adds(state: State) -> None:
    ops = OpsServer(Address("127.0.0.1", 0), lambda: True, lambda: "process/bubblewrap: memory: groups\n")
    ops.start()
    try:
        ports = {**USUAL_PORTS, "executor-ops": ops.port}
        part = service_part(ServicePlan("executor", ()), ports, Pki(state.pki), Settings())
        assert await part.detail() == "process/bubblewrap: memory: groups\n"
    finally:
        ops.stop()
