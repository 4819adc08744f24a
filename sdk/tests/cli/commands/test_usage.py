"""`toolmesh usage`: what is asked of the mesh, and what a person and a machine get to read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import usage_pb2
from toolmesh.audit.v1 import usage_service_pb2 as pb
from toolmesh.common.v1 import error_reason_pb2

from libs.common.errors import MeshError, Reason

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
LONG = "did:web:example.com:agents:" + "a-very-long-name-of-an-agent" * 3


def stamp(moment: datetime) -> Timestamp:
    made = Timestamp()
    made.FromDatetime(moment)
    return made


def seconds(value: float) -> Duration:
    return Duration(seconds=int(value), nanos=int(value % 1 * 1e9))


REASONS = sorted(number for number in error_reason_pb2.ErrorReason.values() if number)[:8]


def usage(calls: int = 10, failed: int = 0, **changes: Any) -> usage_pb2.Usage:
    """Return the usage of so many calls, some of which failed."""
    fields: dict[str, Any] = {
        "calls": calls,
        "succeeded": calls - failed,
        "failed": failed,
        "success_rate": (calls - failed) / calls,
        "reasons": [
            usage_pb2.ReasonCount(reason=error_reason_pb2.ERROR_REASON_EXECUTION_FAILED, count=failed)
            for _ in range(1 if failed else 0)
        ],
        "latency": usage_pb2.Latency(
            count=calls,
            mean=seconds(0.004),
            max=seconds(1.5),
            p50=seconds(0.003),
            p95=seconds(0.0214),
            p99=seconds(0.7),
        ),
        "first_call_time": stamp(TODAY - timedelta(days=3)),
        "last_call_time": stamp(TODAY),
        **changes,
    }
    return usage_pb2.Usage(**fields)


def coverage(**changes: Any) -> usage_pb2.UsageCoverage:
    fields: dict[str, Any] = {"counted_records": 20, "log_records": 20, **changes}
    return usage_pb2.UsageCoverage(
        from_day=stamp(TODAY - timedelta(days=29)), to_day=stamp(TODAY + timedelta(days=1)), **fields
    )


def ranked(name: str, calls: int, failed: int = 0, **changes: Any) -> pb.RankedUsage:
    days = [
        usage_pb2.DayCalls(day=stamp(TODAY - timedelta(days=3)), calls=calls - 1, errors=failed),
        usage_pb2.DayCalls(day=stamp(TODAY), calls=1),
    ]
    return pb.RankedUsage(name=name, usage=usage(calls, failed, **changes), days=days)


def ranking(*entries: pb.RankedUsage, **changes: Any) -> pb.ListTopUsageResponse:
    return pb.ListTopUsageResponse(entries=entries, coverage=coverage(**changes))


@pytest.fixture
def used(mesh: Any) -> Any:
    """A mesh whose usage is known."""
    days = [usage_pb2.DayUsage(day=stamp(TODAY), usage=usage(100, 7))]
    mesh.answer("GetUsage", pb.GetUsageResponse(total=usage(100, 7, refused=2), days=days, coverage=coverage()))
    mesh.answer(
        "GetToolUsage",
        pb.GetToolUsageResponse(
            name="tools/core.echo", distinct_callers=12, last_call_time=stamp(TODAY), usage=usage(100)
        ),
    )
    mesh.answer(
        "ListTopUsage", ranking(ranked("tools/core.echo", 90, 9), ranked("tools/acme.send_email", 10), ranked("", 2))
    )
    return mesh


@pytest.fixture
def unused(mesh: Any) -> Any:
    """A mesh without calls."""
    mesh.answer("GetUsage", pb.GetUsageResponse(coverage=coverage()))
    mesh.answer("GetToolUsage", pb.GetToolUsageResponse(name="tools/core.echo"))
    mesh.answer("ListTopUsage", ranking())
    return mesh


def lines_of(ran: Any) -> list[list[str]]:
    assert ran.exit_code == 0, ran.output
    return [line.split() for line in ran.stdout.splitlines()]


def test_the_ranking_is_a_table_of_tools_with_their_figures(toolmesh: Any, used: Any) -> None:
    lines = lines_of(toolmesh("usage", "top"))
    table = lines[next(place for place, line in enumerate(lines) if line[:1] == ["TOOL"]) :]
    assert table[0][:5] == ["TOOL", "CALLS", "ERRORS", "P50", "P95"]
    assert "COST" not in table[0]
    assert table[1][:8] == ["core.echo", "90", "10", "%", "3", "ms", "21.4", "ms"]
    assert [line[0] for line in table[1:]] == ["core.echo", "acme.send_email", "(no"]
    # The more calls, the longer the bar.
    assert len(table[1][-1]) > len(table[2][-1]) > 0


@pytest.mark.parametrize("by", ["calls", "errors", "cost", "latency"])
def test_the_order_and_the_days_are_those_asked_for(toolmesh: Any, used: Any, by: str) -> None:
    toolmesh("usage", "top", "--by", by, "--days", "7", "-n", "3")
    asked = used.of("ListTopUsage")[0].request
    assert asked.order == pb.UsageOrder.Value(f"USAGE_ORDER_{by.upper()}")
    assert (asked.group, asked.page_size) == (pb.USAGE_GROUP_TOOL, 3)
    assert asked.filter.from_time.ToDatetime(UTC).date() == (datetime.now(UTC) - timedelta(days=6)).date()


def test_callers_are_listed_by_their_names_in_full(toolmesh: Any, used: Any) -> None:
    used.answer("ListTopUsage", ranking(ranked(LONG, 5)))
    ran = toolmesh("usage", "top", "--callers")
    assert used.of("ListTopUsage")[0].request.group == pb.USAGE_GROUP_CALLER
    assert any(line and line[0] == LONG for line in lines_of(ran))


def test_costs_are_shown_where_there_are_any(toolmesh: Any, used: Any) -> None:
    used.answer("ListTopUsage", ranking(ranked("tools/core.echo", 5, cost_micros=1_234_567)))
    out = toolmesh("usage", "top", "--by", "cost").stdout
    assert "COST" in out
    assert "1.23" in out


def test_more_than_a_page_is_asked_for_page_by_page(toolmesh: Any, used: Any) -> None:
    first = ranking(*(ranked(f"tools/core.tool_{number}", 200 - number) for number in range(100)))
    first.next_page_token = "p2"
    used.answer("ListTopUsage", first, ranking(*(ranked(f"tools/core.more_{number}", 9) for number in range(50))))
    entries = json.loads(toolmesh("usage", "top", "-n", "120", "--json").stdout)["entries"]
    assert len(entries) == 120
    assert [call.request.page_token for call in used.of("ListTopUsage")] == ["", "p2"]


def test_a_tool_is_shown_with_its_days_outcomes_versions_and_callers(toolmesh: Any, used: Any) -> None:
    used.answer(
        "ListTopUsage", ranking(ranked("tools/core.echo/versions/1.0.0", 90)), ranking(ranked("did:web:x:alice", 100))
    )
    lines = lines_of(toolmesh("usage", "tool", "echo", "--version", "1.0.0"))
    facts = {line[0]: line[1:] for line in lines if line}
    assert facts["core.echo"][-2:] == ["9", "errors"]
    assert facts["callers"] == ["12"]
    assert facts["latency"] == ["p50", "3", "ms", "p95", "21.4", "ms", "p99", "700", "ms", "max", "1.5", "s"]
    assert facts["succeeded"][:3] == ["93", "93", "%"]
    assert facts["because"] == ["EXECUTION_FAILED", "7"]
    assert {"1.0.0", "did:web:x:alice"} <= set(facts)
    assert used.of("GetToolUsage")[0].request.name == "tools/core.echo/versions/1.0.0"
    groups = [(call.request.group, call.request.filter.tool) for call in used.of("ListTopUsage")]
    assert groups == [(pb.USAGE_GROUP_VERSION, "echo"), (pb.USAGE_GROUP_CALLER, "echo")]


def test_reasons_that_are_not_shown_are_counted(toolmesh: Any, used: Any) -> None:
    reasons = [usage_pb2.ReasonCount(reason=number, count=3) for number in REASONS]
    total = usage(100, 44, reasons=reasons)
    days = [usage_pb2.DayUsage(day=stamp(TODAY), usage=usage(100, 44))]
    used.answer("GetUsage", pb.GetUsageResponse(total=total, days=days, coverage=coverage()))
    lines = lines_of(toolmesh("usage", "tool", "echo"))
    assert sum(line[:1] == ["because"] for line in lines) == 5
    assert ["and", "3", "more", "9"] in lines


def test_a_caller_is_shown_with_its_tools(toolmesh: Any, used: Any) -> None:
    used.answer("ListTopUsage", ranking(ranked("tools/core.echo/versions/1.0.0", 90)))
    lines = lines_of(toolmesh("usage", "caller", "did:web:x:alice"))
    assert ["core.echo@1.0.0", "90"] in [line[:2] for line in lines]
    assert used.of("GetUsage")[0].request.filter.subject == "did:web:x:alice"


@pytest.mark.parametrize(
    "arguments", [("top",), ("top", "--callers"), ("tool", "echo"), ("caller", "did:web:x:alice")], ids=" ".join
)
def test_without_calls_the_next_step_is_printed(toolmesh: Any, unused: Any, arguments: tuple[str, ...]) -> None:
    ran = toolmesh("usage", *arguments)
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert "toolmesh " in ran.stderr


def test_a_tool_that_was_called_long_ago_says_when(toolmesh: Any, unused: Any) -> None:
    once = pb.GetToolUsageResponse(name="tools/core.echo", last_call_time=stamp(datetime(2025, 4, 3, tzinfo=UTC)))
    unused.answer("GetToolUsage", once)
    assert "2025-04-03" in toolmesh("usage", "tool", "echo").stderr


def test_uncounted_calls_are_noted_on_stderr(toolmesh: Any, used: Any) -> None:
    used.answer("ListTopUsage", ranking(ranked("tools/core.echo", 5), log_records=1234, folded_calls=77))
    ran = toolmesh("usage", "top")
    assert "1,214" in ran.stderr
    assert "77" in ran.stderr
    assert "77" not in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (("top",), {"entries", "coverage"}),
        (("tool", "echo"), {"usage", "tool", "versions", "callers"}),
        (("caller", "did:web:x:alice"), {"usage", "tools"}),
    ],
    ids=["top", "tool", "caller"],
)
def test_a_machine_gets_all_of_it_as_one_document(
    toolmesh: Any, used: Any, arguments: tuple[str, ...], keys: set[str]
) -> None:
    document = json.loads(toolmesh("usage", *arguments, "--json").stdout)
    assert set(document) == keys
    assert "next_page_token" not in json.dumps(document)


@pytest.mark.usefixtures("unused")
def test_a_machine_gets_a_document_where_there_is_nothing(toolmesh: Any) -> None:
    document = json.loads(toolmesh("usage", "top", "--json").stdout)
    assert (document["entries"], document["coverage"]["counted_records"]) == ([], 20)


def test_a_name_of_no_tool_fails_with_advice(toolmesh: Any, used: Any) -> None:
    used.answer("GetUsage", MeshError(Reason.TOOL_NOT_FOUND))
    ran = toolmesh("usage", "tool", "No Tool")
    assert ran.exit_code == 1
    assert "tools list" in ran.stderr


def test_a_caller_without_the_scope_is_refused(toolmesh: Any, used: Any) -> None:
    used.answer("ListTopUsage", MeshError(Reason.SCOPE_MISSING))
    assert toolmesh("usage", "top").exit_code == 4
