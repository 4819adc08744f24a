"""The RPCs of the upstream service, in the order of the contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from toolmesh.registry.v1 import upstream_service_pb2 as pb
from toolmesh.registry.v1 import upstream_service_pb2_grpc as rpc

from libs.common.call_context import serving
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.registry.convert import upstreams as convert
from services.registry.convert.registry import actor_of
from services.registry.domain.upstreams.apply_report import apply_report
from services.registry.domain.upstreams.change_upstream import (
    accept_changes,
    add_upstream,
    refresh_upstream,
    remove_upstream,
)
from services.registry.domain.upstreams.find_upstreams import get_upstream, list_upstreams, watch_upstreams
from services.registry.domain.upstreams.ports import Upstreams
from services.registry.domain.upstreams.publishing import Publisher


class UpstreamHandlers(rpc.UpstreamServiceServicer):
    """Serves upstreams. The RPC chain has already authenticated and authorized the peer."""

    def __init__(self, *, upstreams: Upstreams, publisher: Publisher, clock: Clock, journal: Log) -> None:
        self._upstreams, self._publisher = upstreams, publisher
        self._clock, self._journal = clock, journal
        self._ended = asyncio.Event()

    def end_watches(self) -> None:
        """End every watch, because the process stops."""
        self._ended.set()

    async def AddUpstream(self, request: pb.AddUpstreamRequest, context: Any) -> pb.AddUpstreamResponse:
        added = await add_upstream(
            request.upstream_id,
            convert.endpoint_of(request.endpoint),
            convert.overlays_of(request),
            actor_of(serving()),
            upstreams=self._upstreams,
            catalogue=self._publisher.catalogue,
            clock=self._clock,
            slow_call_time=convert.slow_call_time_of(request),
        )
        self._journal.info("upstream added", upstream=added.name, request_id=request.request_id)
        return pb.AddUpstreamResponse(upstream=convert.upstream(added))

    async def GetUpstream(self, request: pb.GetUpstreamRequest, context: Any) -> pb.GetUpstreamResponse:
        stored = await get_upstream(convert.upstream_id_of(request.name), upstreams=self._upstreams)
        return pb.GetUpstreamResponse(upstream=convert.upstream(stored, with_definitions=True))

    async def ListUpstreams(self, request: pb.ListUpstreamsRequest, context: Any) -> pb.ListUpstreamsResponse:
        page = await list_upstreams(request.page_size, request.page_token, upstreams=self._upstreams)
        shown = [convert.upstream(each, with_findings=False) for each in page.upstreams]
        return pb.ListUpstreamsResponse(upstreams=shown, next_page_token=page.next_token)

    async def RefreshUpstream(self, request: pb.RefreshUpstreamRequest, context: Any) -> pb.RefreshUpstreamResponse:
        upstream_id = convert.upstream_id_of(request.name)
        refreshed = await refresh_upstream(upstream_id, upstreams=self._upstreams, clock=self._clock)
        return pb.RefreshUpstreamResponse(upstream=convert.upstream(refreshed))

    async def AcceptChanges(self, request: pb.AcceptChangesRequest, context: Any) -> pb.AcceptChangesResponse:
        accepted = await accept_changes(
            convert.upstream_id_of(request.name),
            {change.native_name: change.digest for change in request.changes},
            request.reason,
            upstreams=self._upstreams,
            publisher=self._publisher,
        )
        self._journal.info("changes accepted", upstream=accepted.name, tools=len(request.changes))
        return pb.AcceptChangesResponse(upstream=convert.upstream(accepted, with_definitions=True))

    async def RemoveUpstream(self, request: pb.RemoveUpstreamRequest, context: Any) -> pb.RemoveUpstreamResponse:
        upstream_id = convert.upstream_id_of(request.name)
        await remove_upstream(upstream_id, upstreams=self._upstreams, publisher=self._publisher)
        self._journal.info("upstream removed", upstream=request.name, request_id=request.request_id)
        return pb.RemoveUpstreamResponse()

    async def WatchUpstreams(
        self, request: pb.WatchUpstreamsRequest, context: Any
    ) -> AsyncIterator[pb.WatchUpstreamsResponse]:
        async with aclosing(watch_upstreams(upstreams=self._upstreams, ended=self._ended)) as events:
            async for event in events:
                yield convert.watch_response(event)

    async def ReportUpstream(self, request: pb.ReportUpstreamRequest, context: Any) -> pb.ReportUpstreamResponse:
        due = await apply_report(
            convert.upstream_id_of(request.name),
            convert.report_of(request),
            upstreams=self._upstreams,
            publisher=self._publisher,
            clock=self._clock,
        )
        return convert.report_response(due)
