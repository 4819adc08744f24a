"""Reads usage: counts, success, latency and cost of calls, by tool, version, caller, task and day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from toolmesh.audit.v1 import usage_service_pb2 as pb
from toolmesh.audit.v1.usage_service_pb2_grpc import UsageServiceStub

from toolmesh_sdk._wire.times import to_timestamp
from toolmesh_sdk._wire.usage_requests import UsageFilters, top_request, usage_request

if TYPE_CHECKING:
    from toolmesh_sdk.client import Client


class UsageReader:
    """Reads usage through a client, which it does not close. Every failure is a ToolmeshError."""

    def __init__(self, client: Client) -> None:
        self._transport = client.transport

    def get(self, *, timeout: float | None = None, **filters: Unpack[UsageFilters]) -> pb.GetUsageResponse:
        """Return the usage of the filtered calls, in total and by day."""
        request = usage_request(filters)
        return self._transport.unary(self._stub.GetUsage, request, timeout, repeatable=True)

    def tool(
        self, name: str, *, from_time: datetime | None = None, timeout: float | None = None
    ) -> pb.GetToolUsageResponse:
        """Return the last call, callers and rates of a tool or version, by its resource name."""
        request = pb.GetToolUsageRequest(name=name, from_time=to_timestamp(from_time))
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
        """Return the top entries of a ranking by calls, errors, cost or latency.

        `group` is tool, version, caller, task or tenant. Raises ValueError for an unknown group or order.
        """
        request = top_request(group, order, number, filters)
        ranking = pb.ListTopUsageResponse()
        for page in self._pages(request, timeout):
            ranking.MergeFrom(page)
            if len(ranking.entries) >= number:
                break
        del ranking.entries[number:]
        return ranking

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
    """Return the resource name of a tool, such as `tools/core.echo` for echo, or of its version."""
    name = reference.removeprefix("tools/")
    resource = "tools/" + (name if "." in name else f"core.{name}")
    return f"{resource}/versions/{version}" if version else resource
