"""Builds requests for usage from filters."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from toolmesh.audit.v1 import usage_service_pb2 as pb

from toolmesh_sdk._wire.times import to_timestamp

_MAX_PAGE_SIZE = 100


class UsageFilters(TypedDict, total=False):
    """Filters of counted calls. Times are aware, and widened to whole UTC days."""

    tool: str
    version: str
    subject: str
    task_id: str
    tenant: str
    from_time: datetime
    to_time: datetime


def usage_request(filters: UsageFilters) -> pb.GetUsageRequest:
    """Build the request for the usage of the filtered calls."""
    return pb.GetUsageRequest(filter=_filter(filters))


def top_request(group: str, order: str, number: int, filters: UsageFilters) -> pb.ListTopUsageRequest:
    """Build the request for the first page of a ranking. Raises ValueError for an unknown group or order."""
    return pb.ListTopUsageRequest(
        group=pb.UsageGroup.Value(f"USAGE_GROUP_{group.upper()}"),
        order=pb.UsageOrder.Value(f"USAGE_ORDER_{order.upper()}"),
        filter=_filter(filters),
        page_size=min(number, _MAX_PAGE_SIZE),
    )


def _filter(filters: UsageFilters) -> pb.UsageFilter:
    return pb.UsageFilter(
        tool=filters.get("tool", ""),
        version=filters.get("version", ""),
        subject=filters.get("subject", ""),
        task_id=filters.get("task_id", ""),
        tenant=filters.get("tenant", ""),
        from_time=to_timestamp(filters.get("from_time")),
        to_time=to_timestamp(filters.get("to_time")),
    )
