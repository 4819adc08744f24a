"""`toolmesh audit costs`: what calls cost, part by part."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toolmesh.audit.v1 import audit_record_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2
from toolmesh_sdk.cli.commands.audit.costs import format_exact_cost

from sdk.tests.cli.commands.audit.test_records import record


def paid(sequence: int, task: str, *costs: tuple[str, int]) -> Any:
    parts = [pb.RecordedCost(category=category, amount_micros=micros) for category, micros in costs]
    return record(sequence, task_id=task, costs=parts, cost_micros=sum(micros for _, micros in costs))


@pytest.fixture
def log(mesh: Any) -> Any:
    records = [paid(9, "t1", ("price", 2000), ("compute", 7)), paid(8, "t2", ("price", 1)), record(7)]
    mesh.answer("QueryRecords", audit_service_pb2.QueryRecordsResponse(records=records))
    return mesh


@pytest.mark.parametrize(("options", "total", "calls"), [((), 2008, [9, 8]), (("--task", "t1"), 2007, [9])])
def test_calls_that_cost_something_are_listed_and_summed(
    toolmesh: Any, log: Any, options: tuple[str, ...], total: int, calls: list[int]
) -> None:
    found = json.loads(toolmesh("audit", "costs", *options, "--json").stdout)
    assert (found["total_micros"], [call["sequence"] for call in found["calls"]]) == (total, calls)
    assert found["calls"][0]["costs"] == {"price": 2000, "compute": 7}
    assert format_exact_cost(total) in toolmesh("audit", "costs", *options).stdout.splitlines()[-1]


def test_amounts_are_exact() -> None:
    assert format_exact_cost(2**53 + 1) == "9,007,199,254.740993"
