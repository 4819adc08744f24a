"""The tools that a manifest names: they exist, or come with it."""

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


async def rules(tool: str, shelf: Shelf, **options: Any) -> tuple[list[str], list[str]]:
    manifest = manifest_of(writer(compensation_tool=tool))
    catalogue: Any = shelf
    found = await examine_references(manifest, catalogue, **options)
    return [each.rule for each in found.blocked], [each.rule for each in found.warned]


@pytest.mark.parametrize(
    ("tool", "shelf", "missing"),
    [
        ("tools/acme.restore_order", Shelf(acme__restore_order=LifecycleState.AVAILABLE), False),
        ("tools/acme.restore_order", Shelf(acme__restore_order=LifecycleState.DRAFT), False),
        ("tools/acme.restore_order", Shelf(), True),
        ("tools/acme.restore_order", Shelf(acme__restore_order=LifecycleState.RETIRED), True),
        # It undoes itself.
        ("tools/acme.cancel_order", Shelf(), False),
        ("tools/globex.restore", Shelf(globex__restore=LifecycleState.DEPRECATED), False),
        ("tools/globex.restore", Shelf(), True),
        ("tools/globex.restore", Shelf(globex__restore=LifecycleState.SUNSET), True),
        # Its form is the business of another rule.
        ("not a tool", Shelf(), False),
    ],
)
async def test_a_compensation_exists(tool: str, shelf: Shelf, missing: bool) -> None:
    assert await rules(tool, shelf) == (["compensation.exists"] if missing else [], [])


async def test_a_compensation_may_come_with_the_tool_or_later_from_the_same_upstream() -> None:
    own, other = "tools/acme.restore_order", "tools/globex.restore"
    beside = {ToolName("acme", "restore_order")}
    assert await rules(own, Shelf(), beside=beside) == ([], [])
    assert await rules(other, Shelf(), beside=beside) == (["compensation.exists"], [])
    assert await rules(own, Shelf(), imported=True) == ([], ["compensation.exists"])
    assert await rules(other, Shelf(), imported=True) == (["compensation.exists"], [])


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


def undoing(tool: str, by: str, **changes: Any) -> mpb.ToolManifest:
    return writer(f"acme.{tool}", compensation_tool=f"tools/acme.{by}", **changes)


async def test_a_registration_that_names_a_missing_tool_is_refused(registry: Replica) -> None:
    stub = registry.stub()
    for missing in ("tools/globex.restore", "tools/acme.restore_order"):
        request = pb.RegisterToolRequest(manifest=writer(compensation_tool=missing))
        refused = await refusal(stub.RegisterTool(request, timeout=PATIENCE))
        assert (refused.reason, [each.rule for each in refused.violations]) == (
            Reason.TOOL_MANIFEST_INVALID,
            ["compensation.exists"],
        )


async def test_two_that_undo_each_other_are_registered_together(registry: Replica) -> None:
    stub = registry.stub()
    book, unbook = undoing("book_order", "drop_order"), undoing("drop_order", "book_order")
    answer = await stub.RegisterTool(pb.RegisterToolRequest(manifest=book, beside=[unbook]), timeout=PATIENCE)
    assert (answer.created, [each.name for each in answer.beside]) == (True, ["tools/acme.drop_order/versions/1.0.0"])
    again = await stub.RegisterTool(pb.RegisterToolRequest(manifest=unbook, beside=[book]), timeout=PATIENCE)
    assert (again.created, list(again.beside)) == (False, [])
    found = await stub.GetTool(pb.GetToolRequest(name="acme.drop_order"), timeout=PATIENCE)
    assert found.versions[0].manifest.compensation_tool == "tools/acme.book_order"


async def test_nothing_is_stored_if_one_of_them_is_refused(registry: Replica) -> None:
    stub = registry.stub()
    broken = undoing("drop_order", "book_order")
    broken.ClearField("side_effects")
    request = pb.RegisterToolRequest(manifest=undoing("book_order", "drop_order"), beside=[broken])
    refused = await refusal(stub.RegisterTool(request, timeout=PATIENCE))
    assert [(each.path, each.rule) for each in refused.violations] == [
        ("beside[0].side_effects", "side_effects.required")
    ]
    # Refused under the lock: the alias of the second is the name of the first.
    taken = undoing("drop_order", "book_order", aliases=["book_order"])
    request = pb.RegisterToolRequest(manifest=undoing("book_order", "drop_order"), beside=[taken])
    assert (await refusal(stub.RegisterTool(request, timeout=PATIENCE))).reason is Reason.ALREADY_EXISTS
    absent = await refusal(stub.GetTool(pb.GetToolRequest(name="acme.book_order"), timeout=PATIENCE))
    assert absent.reason is Reason.TOOL_NOT_FOUND


async def test_those_registered_together_are_of_one_namespace_and_each_of_another_tool(registry: Replica) -> None:
    stub = registry.stub()
    for other, rule in (
        (writer("globex.drop_order"), "beside.namespace"),
        (writer(version="2.0.0"), "beside.distinct"),
    ):
        request = pb.RegisterToolRequest(manifest=writer(), beside=[other])
        refused = await refusal(stub.RegisterTool(request, timeout=PATIENCE))
        assert [each.rule for each in refused.violations] == [rule]
