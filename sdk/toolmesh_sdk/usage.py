"""What the mesh is used for: counts, success, latency and cost of calls, by tool, version, caller, task and day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from typing import TypedDict, Unpack

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import usage_service_pb2 as pb
from toolmesh.audit.v1.usage_service_pb2_grpc import UsageServiceStub

from toolmesh_sdk.client import Client

_MOST_PER_PAGE = 100


class UsageFilters(TypedDict, total=False):
    """Which calls are counted; what is left out does not narrow. Times are aware, and widened to whole days of UTC."""

    tool: str
    version: str
    subject: str
    task_id: str
    tenant: str
    from_time: datetime
    to_time: datetime


class UsageReader:
    """Asks about usage through a client, which it does not close. Every failure is a ToolmeshError."""

    def __init__(self, client: Client) -> None:
        self._transport = client._transport

    def get(self, *, timeout: float | None = None, **filters: Unpack[UsageFilters]) -> pb.GetUsageResponse:
        """Return the usage of what the filters name, in total and by day."""
        request = pb.GetUsageRequest(filter=_filter(filters))
        return self._transport.unary(self._stub.GetUsage, request, timeout, repeatable=True)

    def tool(
        self, name: str, *, from_time: datetime | None = None, timeout: float | None = None
    ) -> pb.GetToolUsageResponse:
        """Return how a tool or a version is used, by its resource name: its last call ever, its callers, its rates."""
        request = pb.GetToolUsageRequest(name=name, from_time=_stamp(from_time))
        return self._transport.unary(self._stub.GetToolUsage, request, timeout, repeatable=True)

    def top(
        self,
        group: str,
        order: str = "calls",
        *,
        number: int = 20,
        timeout: float | None = None,
        **filters: Unpack[UsageFilters],
    ) -> pb.ListTopUsageResponse:
        """Return the first places of a ranking of tools, versions, callers or tasks, by calls, errors, cost or latency.

        `group` is tool, version, caller or task. Raises ValueError for a word that the contract does not know.
        """
        request = pb.ListTopUsageRequest(
            group=pb.UsageGroup.Value(f"USAGE_GROUP_{group.upper()}"),
            order=pb.UsageOrder.Value(f"USAGE_ORDER_{order.upper()}"),
            filter=_filter(filters),
            page_size=min(number, _MOST_PER_PAGE),
        )
        whole = pb.ListTopUsageResponse()
        for page in self._pages(request, timeout):
            whole.MergeFrom(page)
            if len(whole.entries) >= number:
                break
        del whole.entries[number:]
        return whole

    def _pages(self, request: pb.ListTopUsageRequest, timeout: float | None) -> Iterator[pb.ListTopUsageResponse]:
        while True:
            page = self._transport.unary(self._stub.ListTopUsage, request, timeout, repeatable=True)
            request.page_token = page.next_page_token
            yield page
            if not page.next_page_token:
                return

    @cached_property
    def _stub(self) -> UsageServiceStub:
        return UsageServiceStub(self._transport.channel)


def tool_resource(reference: str, version: str = "") -> str:
    """Return the resource name of a tool: `tools/core.echo` for echo; of one of its versions, if one is given."""
    name = reference.removeprefix("tools/")
    resource = "tools/" + (name if "." in name else f"core.{name}")
    return f"{resource}/versions/{version}" if version else resource


def _filter(filters: UsageFilters) -> pb.UsageFilter:
    return pb.UsageFilter(
        tool=filters.get("tool", ""),
        version=filters.get("version", ""),
        subject=filters.get("subject", ""),
        task_id=filters.get("task_id", ""),
        tenant=filters.get("tenant", ""),
        from_time=_stamp(filters.get("from_time")),
        to_time=_stamp(filters.get("to_time")),
    )


def _stamp(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
