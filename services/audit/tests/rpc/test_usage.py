"""Usage as its readers see it: real mutual TLS, a real database."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import usage_service_pb2 as pb
from toolmesh.common.v1 import error_reason_pb2

from libs.common.errors import Reason
from services.audit.domain.usage import cells
from services.audit.tests.replicas import Replica, reason_of, reply
from services.audit.tests.sample import stamp
from services.audit.tests.usage_replicas import top, until_counted, usage_stub
from services.audit.tests.usage_sample import ALICE, BOB, a_decision, a_failure, an_ending

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
YESTERDAY = TODAY - timedelta(days=1)


def records() -> list[record_pb.AuditRecord]:
    """Return a small history: two days, two tools, three versions, two callers."""
    add, echo = "tools/core.arith_add/versions/1.0.0", "tools/core.echo/versions/{}"
    morning = YESTERDAY + timedelta(hours=9)
    return [
        a_decision(),
        an_ending(at=morning, tool_version=echo.format("1.0.0"), latency_us=1_000, cost_micros=5, task_id="t1"),
        a_decision(),
        an_ending(at=morning, tool_version=echo.format("2.0.0"), subject=BOB, latency_us=3_000, cost_micros=7),
        a_failure("RESULT_INVALID", tool_version=echo.format("2.0.0"), subject=BOB, latency_us=2_000, at=TODAY),
        an_ending(tool_version=echo.format("2.0.0"), latency_us=1_000, task_id="t1", at=TODAY),
        an_ending(tool_version=add, replayed=True, attempt=0, at=TODAY),
        an_ending(tool_version=add, latency_us=90_000, cost_micros=1_000, tenant="beta", at=TODAY),
        a_failure("PERMISSION_DENIED", tool_version=add, attempt=0, state="denied", at=TODAY),
        a_failure("TOOL_NOT_FOUND", tool_version="nosuch", attempt=0, at=TODAY),
    ]


@pytest.fixture
async def used(audit: Replica, pki: Any) -> Any:
    """The operator's stub of a service that has counted a small history."""
    await audit.append(*records())
    await until_counted(audit.url, 10)
    return usage_stub(audit, pki, "operator")


async def usage(stub: Any, **changes: Any) -> Any:
    return await reply(stub.GetUsage(pb.GetUsageRequest(filter=pb.UsageFilter(**changes))))


async def test_everything_is_counted_in_total_and_by_day(used: Any) -> None:
    answer = await usage(used)
    total = answer.total
    assert (total.calls, total.succeeded, total.failed, total.replayed, total.refused, total.not_started) == (
        *(8, 4, 1),
        *(1, 1, 1),
    )
    assert total.success_rate == pytest.approx(0.8)
    assert total.cost_micros == 1012
    assert [(day.day.seconds, day.usage.calls) for day in answer.days] == [
        (int(YESTERDAY.timestamp()), 2),
        (int(TODAY.timestamp()), 6),
    ]
    assert {error_reason_pb2.ErrorReason.Name(each.reason): each.count for each in total.reasons} == {
        "ERROR_REASON_RESULT_INVALID": 1,
        "ERROR_REASON_PERMISSION_DENIED": 1,
        "ERROR_REASON_TOOL_NOT_FOUND": 1,
    }
    coverage = answer.coverage
    assert (coverage.counted_records, coverage.log_records, coverage.folded_calls) == (10, 10, 0)
    assert coverage.to_day.seconds - coverage.from_day.seconds == 30 * 86_400


async def test_latencies_are_those_of_calls_that_ended_by_themselves(used: Any) -> None:
    latency = (await usage(used, tool="echo")).total.latency
    assert latency.count == 4
    assert latency.mean.ToMicroseconds() == 1750
    assert latency.max.ToMicroseconds() == 3000
    assert latency.p50.ToNanoseconds() == pytest.approx(1_000_000, rel=0.01)
    assert latency.p95.ToNanoseconds() == pytest.approx(3_000_000, rel=0.01)


NARROWED = [
    ({"tool": "echo"}, 4),
    ({"tool": "tools/core.echo", "version": "2.0.0"}, 3),
    ({"subject": BOB}, 2),
    ({"subject": ALICE, "tool": "echo"}, 2),
    ({"tenant": "beta"}, 1),
    ({"tenant": "acme", "tool": "arith_add"}, 2),
    ({"task_id": "t1"}, 2),
    ({"task_id": "t1", "tool": "echo", "version": "1.0.0"}, 1),
    ({"tool": "never_called"}, 0),
    ({"version": "2.0.0"}, 8),
    ({"from_time": stamp(TODAY)}, 6),
    ({"to_time": stamp(TODAY)}, 2),
    ({"to_time": stamp(TODAY + timedelta(microseconds=1)), "from_time": stamp(TODAY)}, 6),
]


async def test_a_filter_narrows_what_is_counted(used: Any) -> None:
    for narrowed, calls in NARROWED:
        answer = await usage(used, **narrowed)  # type: ignore[arg-type]
        assert (answer.total.calls, sum(day.usage.calls for day in answer.days)) == (calls, calls), narrowed


async def test_an_unused_tool_has_neither_rates_nor_times(used: Any) -> None:
    total = (await usage(used, tool="never_called")).total
    assert not any(total.HasField(name) for name in ("success_rate", "latency", "first_call_time", "last_call_time"))


async def test_a_version_is_known_by_its_last_call_its_callers_and_its_rates(used: Any) -> None:
    name = "tools/core.echo/versions/2.0.0"
    request = pb.GetToolUsageRequest(name=name)
    request.declared_latency.FromMicroseconds(2_500)
    found = await reply(used.GetToolUsage(request))
    assert (found.name, found.distinct_callers, found.more_callers) == (name, 2, False)
    assert found.invalid_result_rate == pytest.approx(1 / 3)
    assert found.within_latency_rate == pytest.approx(2 / 3)
    assert found.usage.success_rate == pytest.approx(2 / 3)
    assert found.last_call_time.ToDatetime(UTC) == TODAY


async def test_the_last_call_is_known_however_long_ago_it_was(used: Any, audit: Replica) -> None:
    once = TODAY - timedelta(days=2000)
    await audit.append(an_ending(at=once, tool_version="tools/core.old_tool/versions/0.1.0"))
    await until_counted(audit.url, 11)
    found = await reply(used.GetToolUsage(pb.GetToolUsageRequest(name="tools/core.old_tool")))
    assert (found.usage.calls, found.distinct_callers) == (0, 0)
    assert found.first_call_time.ToDatetime(UTC) == found.last_call_time.ToDatetime(UTC) == once
    assert not found.HasField("within_latency_rate")


async def test_many_are_answered_as_each_would_be_alone(used: Any, audit: Replica, monkeypatch: Any) -> None:
    monkeypatch.setitem(cells.LIMITS, cells.Rollup.TOOL, 4)  # type: ignore[arg-type]
    more = [an_ending(at=TODAY, tool_version=f"tools/core.more_{n}/versions/1.0.0") for n in range(3)]
    await audit.append(*more)
    await until_counted(audit.url, 13)
    names = ["tools/core.echo", "tools/core.never_called", "tools/core.echo/versions/2.0.0", "tools/core.more_0"]
    requests = [pb.GetToolUsageRequest(name=name) for name in (*names, "tools/core.echo", "tools/core.arith_add")]
    requests[0].declared_latency.FromMicroseconds(2_500)
    requests[3].from_time.CopyFrom(stamp(YESTERDAY))
    together = await reply(used.BatchGetToolUsage(pb.BatchGetToolUsageRequest(requests=requests)))
    assert list(together.usages) == [await reply(used.GetToolUsage(request)) for request in requests]
    assert [found.usage.calls for found in together.usages[:3]] == [4, 0, 3]
    assert together.usages[1].coverage.folded_calls > 0


async def test_more_than_a_hundred_at_once_are_refused(used: Any) -> None:
    requests = [pb.GetToolUsageRequest(name="tools/core.echo")] * 101
    asked = reply(used.BatchGetToolUsage(pb.BatchGetToolUsageRequest(requests=requests)))
    assert await reason_of(asked) is Reason.INVALID_REQUEST


async def ranking(stub: Any, *arguments: Any, **changes: Any) -> list[str]:
    page = await reply(stub.ListTopUsage(top(*arguments, **changes)))
    return [entry.name for entry in page.entries]


RANKINGS = [
    ("TOOL", "CALLS", ["tools/core.echo", "tools/core.arith_add", ""]),
    ("TOOL", "UNSPECIFIED", ["tools/core.echo", "tools/core.arith_add", ""]),
    ("TOOL", "COST", ["tools/core.arith_add", "tools/core.echo", ""]),
    ("TOOL", "LATENCY", ["tools/core.arith_add", "tools/core.echo", ""]),
    ("CALLER", "CALLS", [ALICE, BOB]),
    ("TASK", "CALLS", ["t1"]),
]


async def test_rankings_begin_with_the_largest(used: Any) -> None:
    for group, order, names in RANKINGS:
        assert await ranking(used, group, order) == names, (group, order)


async def test_a_ranking_of_errors_counts_whatever_was_answered_with_one(used: Any) -> None:
    page = await reply(used.ListTopUsage(top("VERSION", "ERRORS", filter=pb.UsageFilter(subject=ALICE))))
    errors = {entry.name: sum(day.errors for day in entry.days) for entry in page.entries}
    assert errors == {
        "": 1,
        "tools/core.arith_add/versions/1.0.0": 1,
        "tools/core.echo/versions/1.0.0": 0,
        "tools/core.echo/versions/2.0.0": 0,
    }
    assert [entry.name for entry in page.entries] == list(errors)


async def test_an_entry_has_its_days(used: Any) -> None:
    page = await reply(used.ListTopUsage(top("TOOL")))
    days = [(day.day.seconds, day.calls, day.errors) for day in page.entries[0].days]
    assert days == [(int(YESTERDAY.timestamp()), 2, 0), (int(TODAY.timestamp()), 2, 1)]
    assert page.entries[0].usage.calls == 4


async def test_pages_of_one_are_the_ranking(used: Any) -> None:
    request, names = top("VERSION", page_size=1), []
    while True:
        page = await reply(used.ListTopUsage(request))
        names += [entry.name for entry in page.entries]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert names == await ranking(used, "VERSION")
    request.page_token = (await reply(used.ListTopUsage(top("VERSION", page_size=1)))).next_page_token
    for other in (top("TOOL"), top("VERSION", "COST"), top("VERSION", filter=pb.UsageFilter(tenant="x"))):
        other.page_token = request.page_token
        assert await reason_of(reply(used.ListTopUsage(other))) is Reason.PAGE_TOKEN_INVALID


async def test_folded_calls_are_reported_in_the_coverage(
    audit: Replica, pki: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cells.LIMITS, cells.Rollup.CALLER, 2)  # type: ignore[arg-type]
    await audit.append(*(an_ending(subject=f"s{number}") for number in range(5)))
    await until_counted(audit.url, 5)
    stub = usage_stub(audit, pki, "operator")
    one = await usage(stub, subject="s0")
    assert (one.total.calls, one.coverage.folded_calls) == (1, 3)
    assert (await usage(stub)).coverage.folded_calls == 0
    page = await reply(stub.ListTopUsage(top("CALLER")))
    assert ([entry.name for entry in page.entries], page.coverage.folded_calls) == (["s0", "s1"], 3)
    found = await reply(stub.GetToolUsage(pb.GetToolUsageRequest(name="tools/core.echo")))
    assert (found.distinct_callers, found.more_callers, found.usage.calls) == (2, True, 5)


BEGINNING, END = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)
SENSELESS: list[tuple[dict[str, Any], Reason]] = [
    ({"tool": "No Tool"}, Reason.TOOL_NOT_FOUND),
    ({"from_time": stamp(TODAY), "to_time": stamp(TODAY)}, Reason.INVALID_REQUEST),
    ({"from_time": stamp(TODAY - timedelta(days=500))}, Reason.INVALID_REQUEST),
    ({"from_time": stamp(BEGINNING), "to_time": stamp(BEGINNING)}, Reason.INVALID_REQUEST),
    ({"to_time": stamp(BEGINNING)}, Reason.INVALID_REQUEST),
    ({"to_time": stamp(END)}, Reason.INVALID_REQUEST),
]


async def test_a_question_without_sense_is_refused(audit: Replica, pki: Any) -> None:
    stub = usage_stub(audit, pki, "operator")
    for narrowed, reason in SENSELESS:
        assert await reason_of(usage(stub, **narrowed)) is reason, narrowed
    for name in ("echo", "tools/echo", "tools/core.echo/versions/", "tools/core.echo/versions/a b"):
        call = stub.GetToolUsage(pb.GetToolUsageRequest(name=name))
        assert await reason_of(reply(call)) is Reason.INVALID_REQUEST, name


def questions(stub: Any, metadata: Any = ()) -> list[Awaitable[Any]]:
    """Return one call of each method."""
    return [
        reply(stub.GetUsage(pb.GetUsageRequest(), metadata=metadata)),
        reply(stub.GetToolUsage(pb.GetToolUsageRequest(name="tools/core.echo"), metadata=metadata)),
        reply(stub.ListTopUsage(top("TOOL"), metadata=metadata)),
    ]


async def test_services_and_the_operator_ask_as_themselves(audit: Replica, pki: Any) -> None:
    for peer in ("operator", "registry", "executor", "authz", "approval"):
        for call in questions(usage_stub(audit, pki, peer)):
            await call


async def test_a_caller_asks_with_the_scope_and_not_without(audit: Replica, pki: Any, signer: Any) -> None:
    def bearer(scope: str) -> Any:
        return (("authorization", f"Bearer {signer.mint(scope=scope)}"),)

    for peer in ("edge", "gateway", "orchestrator"):
        stub = usage_stub(audit, pki, peer)
        assert {await reason_of(call) for call in questions(stub)} == {Reason.UNAUTHENTICATED}
        assert {await reason_of(call) for call in questions(stub, bearer("tools:read"))} == {Reason.SCOPE_MISSING}
        for call in questions(stub, bearer("audit:read")):
            await call
