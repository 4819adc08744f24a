"""Converts messages of UsageService."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import usage_pb2 as usage_pb
from toolmesh.audit.v1 import usage_service_pb2 as pb
from toolmesh.common.v1 import error_reason_pb2

from services.audit.domain.errors import time_out_of_range
from services.audit.domain.model import searchable
from services.audit.domain.usage.call import Outcome
from services.audit.domain.usage.get_tool_usage import ToolUsageReport, ToolUsageRequest
from services.audit.domain.usage.get_usage import UsageReport
from services.audit.domain.usage.list_top_usage import TopUsagePage, TopUsageRequest
from services.audit.domain.usage.model import DayRange, Progress, RankedEntry, UsageFilter, UsageGroup, UsageOrder
from services.audit.domain.usage.tally import Tally

_GROUPS = {pb.UsageGroup.Value(f"USAGE_GROUP_{group.name}"): group for group in UsageGroup}
_ORDERS = {pb.UsageOrder.Value(f"USAGE_ORDER_{order.name}"): order for order in UsageOrder}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT64 = 2**63 - 1


# ---- questions


def filter_of(message: pb.UsageFilter, tenant: str) -> UsageFilter:
    """Return the filter of a message by a reader of this tenant (empty: no tenant). A time outside the calendar raises
    INVALID_REQUEST. A reader with a tenant sees only its own calls, whatever the message asks for."""
    return UsageFilter(
        tool=message.tool,
        version=message.version,
        subject=searchable(message.subject),
        task=searchable(message.task_id),
        tenant=searchable(tenant or message.tenant),
        from_time=_moment(message, "from_time", "filter.from_time"),
        to_time=_moment(message, "to_time", "filter.to_time"),
    )


def tool_usage_request(request: pb.GetToolUsageRequest, tenant: str) -> ToolUsageRequest:
    """Return the request of a reader of this tenant (empty: no tenant)."""
    declared = request.declared_latency.ToMicroseconds() if request.HasField("declared_latency") else None
    return ToolUsageRequest(
        request.name,
        _moment(request, "from_time", "from_time"),
        _moment(request, "to_time", "to_time"),
        declared,
        searchable(tenant),
    )


def top_usage_request(request: pb.ListTopUsageRequest, tenant: str) -> TopUsageRequest:
    """Return the request of a reader of this tenant (empty: no tenant)."""
    order = _ORDERS.get(request.order, UsageOrder.CALLS)
    return TopUsageRequest(
        _GROUPS[request.group], order, filter_of(request.filter, tenant), request.page_size, request.page_token
    )


def _moment(message: Any, name: str, path: str) -> datetime | None:
    if not message.HasField(name):
        return None
    stamp = getattr(message, name)
    try:
        return _EPOCH + timedelta(0, stamp.seconds, stamp.nanos // 1000)
    except OverflowError:
        raise time_out_of_range(path) from None


# ---- answers


def usage_message(report: UsageReport) -> pb.GetUsageResponse:
    """Return a usage report as a message."""
    return pb.GetUsageResponse(
        total=_usage(report.total),
        days=[usage_pb.DayUsage(day=_midnight(day), usage=_usage(tally)) for day, tally in report.days],
        coverage=_coverage(report.range, report.progress),
    )


def tool_message(name: str, report: ToolUsageReport) -> pb.GetToolUsageResponse:
    """Return the usage of a tool as a message."""
    usage = report.usage
    return pb.GetToolUsageResponse(
        name=name,
        first_call_time=_stamp(usage.first),
        last_call_time=_stamp(usage.last),
        usage=_usage(usage.tally),
        distinct_callers=usage.callers,
        more_callers=usage.more_callers,
        invalid_result_rate=usage.tally.invalid_result_rate(),
        within_latency_rate=report.within_rate,
        coverage=_coverage(report.range, usage.progress),
    )


def top_message(group: UsageGroup, page: TopUsagePage) -> pb.ListTopUsageResponse:
    """Return a page of a ranking as a message."""
    return pb.ListTopUsageResponse(
        entries=[_ranked(group, ranked) for ranked in page.entries],
        next_page_token=page.next_page_token,
        coverage=_coverage(page.range, page.progress),
    )


def _ranked(group: UsageGroup, ranked: RankedEntry) -> pb.RankedUsage:
    days = [usage_pb.DayCalls(day=_midnight(day.day), calls=day.calls, errors=day.errors) for day in ranked.days]
    return pb.RankedUsage(name=_name(group, ranked.key), usage=_usage(ranked.tally), days=days)


def _name(group: UsageGroup, key: tuple[str, ...]) -> str:
    if group not in (UsageGroup.TOOL, UsageGroup.VERSION) or not key[0]:
        return key[0]
    return f"tools/{key[0]}" + (f"/versions/{key[1]}" if group is UsageGroup.VERSION else "")


def _usage(tally: Tally) -> usage_pb.Usage:
    reasons = sorted(tally.reasons.items(), key=lambda item: (-item[1], item[0]))
    return usage_pb.Usage(
        calls=tally.calls,
        **{outcome.value: tally.outcomes[outcome] for outcome in Outcome},
        success_rate=tally.success_rate(),
        reasons=[
            usage_pb.ReasonCount(reason=error_reason_pb2.ErrorReason.ValueType(reason), count=count)
            for reason, count in reasons
        ],
        latency=_latency(tally) if tally.timed else None,
        cost_micros=max(-_INT64, min(tally.cost_micros, _INT64)),
        first_call_time=_stamp(tally.first),
        last_call_time=_stamp(tally.last),
    )


def _latency(tally: Tally) -> usage_pb.Latency:
    return usage_pb.Latency(
        count=tally.timed,
        mean=_duration(tally.latency_sum_us / tally.timed),
        max=_duration(tally.latency_max_us),
        p50=_duration(tally.percentile_us(50)),
        p95=_duration(tally.percentile_us(95)),
        p99=_duration(tally.percentile_us(99)),
    )


def _coverage(days: DayRange, progress: Progress) -> usage_pb.UsageCoverage:
    return usage_pb.UsageCoverage(
        from_day=_midnight(days.first),
        to_day=_midnight(days.end),
        counted_records=progress.counted,
        log_records=progress.log_records,
        folded_calls=progress.folded_calls,
    )


def _duration(microseconds: float) -> Duration:
    # In nanoseconds: rounding to microseconds would exceed 1 % for latencies of a few microseconds.
    seconds, nanos = divmod(round(microseconds * 1000), 1_000_000_000)
    return Duration(seconds=seconds, nanos=nanos)


def _midnight(day: date) -> Timestamp:
    return Timestamp(seconds=(day.toordinal() - _EPOCH.toordinal()) * 86_400)


def _stamp(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    since = moment - _EPOCH
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)
