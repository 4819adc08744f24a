"""The tools that a manifest names: those of others exist, its own may follow."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.errors import Reason
from libs.common.tool_names import ToolName
from services.registry.convert.manifest import manifest_of
from services.registry.domain.model import LifecycleState
from services.registry.domain.publishing.examine_references import examine_references
from services.registry.tests.calls import PATIENCE, refusal
from services.registry.tests.conftest import Replica
from services.registry.tests.manifests import writer


class Shelf:
    """A catalogue of tools in states."""

    def __init__(self, **tools: LifecycleState) -> None:
        self._tools = {ToolName.parse(name.replace("__", ".")): state for name, state in tools.items()}

    async def heads(self, names: Sequence[ToolName]) -> list[Any]:
        states = [self._tools[name] for name in names if name in self._tools]
        return [SimpleNamespace(standing=SimpleNamespace(state=state)) for state in states]


async def rules(tool: str, shelf: Shelf) -> tuple[list[str], list[str]]:
    manifest = manifest_of(writer(compensation_tool=tool))
    catalogue: Any = shelf
    found = await examine_references(manifest, catalogue)
    return [each.rule for each in found.blocked], [each.rule for each in found.warned]


@pytest.mark.parametrize(
    ("tool", "shelf", "blocked", "warned"),
    [
        ("tools/acme.restore_order", Shelf(acme__restore_order=LifecycleState.AVAILABLE), False, False),
        ("tools/acme.restore_order", Shelf(acme__restore_order=LifecycleState.DRAFT), False, False),
        ("tools/acme.restore_order", Shelf(), False, True),
        ("tools/acme.restore_order", Shelf(acme__restore_order=LifecycleState.RETIRED), False, True),
        # It undoes itself.
        ("tools/acme.cancel_order", Shelf(), False, False),
        ("tools/globex.restore", Shelf(globex__restore=LifecycleState.DEPRECATED), False, False),
        ("tools/globex.restore", Shelf(), True, False),
        ("tools/globex.restore", Shelf(globex__restore=LifecycleState.SUNSET), True, False),
        # Its form is the business of another rule.
        ("not a tool", Shelf(), False, False),
    ],
)
async def test_a_compensation_exists(tool: str, shelf: Shelf, blocked: bool, warned: bool) -> None:
    rule = "compensation.exists"
    assert await rules(tool, shelf) == ([rule] if blocked else [], [rule] if warned else [])


async def test_a_status_tool_exists() -> None:
    status = mpb.Idempotency(
        mode=mpb.IDEMPOTENCY_MODE_KEY_REQUIRED,
        uncertain_outcome=mpb.UNCERTAIN_OUTCOME_RULE_QUERY_STATUS,
        status_tool="globex.status",
    )
    message = writer(compensation_tool="tools/acme.cancel_order", idempotency=status)
    catalogue: Any = Shelf()
    found = await examine_references(manifest_of(message), catalogue)
    assert [each.rule for each in found.blocked] == ["idempotency.status_tool_exists"]


async def test_a_registration_that_names_a_tool_of_others_that_is_missing_is_refused(registry: Replica) -> None:
    stub = registry.stub()
    missing = pb.RegisterToolRequest(manifest=writer(compensation_tool="tools/globex.restore"))
    refused = await refusal(stub.RegisterTool(missing, timeout=PATIENCE))
    assert (refused.reason, [each.rule for each in refused.violations]) == (
        Reason.TOOL_MANIFEST_INVALID,
        ["compensation.exists"],
    )
    answer = await stub.RegisterTool(pb.RegisterToolRequest(manifest=writer()), timeout=PATIENCE)
    assert [warning.rule for warning in answer.warnings] == ["compensation.exists"]
