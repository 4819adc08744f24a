"""The RPCs, in the order of the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc

from libs.common.call_context import serving
from services.audit.convert import audit as convert
from services.audit.convert import export as convert_export
from services.audit.domain.evidence.checkpoints import Checkpoints
from services.audit.domain.export.export_records import ExportRecords
from services.audit.domain.log.append_records import AppendRecords, Turn
from services.audit.domain.log.get_record import get_record
from services.audit.domain.log.query_records import query_records
from services.audit.domain.log.watch_records import WatchRecords
from services.audit.domain.merkle.note import Origin
from services.audit.domain.ports import LogReader
from services.audit.streams import OpenStreams


@dataclass(frozen=True)
class AuditHandlers(rpc.AuditServiceServicer):
    """Answers the calls of the audit service."""

    log: LogReader
    append: AppendRecords
    watch: WatchRecords
    checkpoints: Checkpoints
    streams: OpenStreams
    export: ExportRecords
    origin: Origin

    async def AppendRecords(
        self, request_iterator: AsyncIterator[pb.AppendRecordsRequest], context: Any
    ) -> AsyncIterator[pb.AppendRecordsResponse]:
        writer, turn = serving().peer, Turn()
        async for request in self.streams.until_closed(request_iterator):
            turn.take(request.batch)
            last = await self.append(convert.entries_of(request, writer))
            yield pb.AppendRecordsResponse(batch=request.batch, last_sequence=last)

    async def GetRecord(self, request: pb.GetRecordRequest, context: Any) -> pb.GetRecordResponse:
        found = await get_record(self.log, request.name, serving().tenant)
        return pb.GetRecordResponse(record=convert.logged_record(found))

    async def QueryRecords(self, request: pb.QueryRecordsRequest, context: Any) -> pb.QueryRecordsResponse:
        return convert.page_message(await query_records(self.log, convert.query_of(request, serving().tenant)))

    async def WatchRecords(
        self, request: pb.WatchRecordsRequest, context: Any
    ) -> AsyncIterator[pb.WatchRecordsResponse]:
        wanted = convert.filter_of(request.filter, serving().tenant)
        position = await self.watch.begin(request.from_sequence)
        # Tells the watcher that from now on nothing passes it by, before there is anything to send.
        await context.send_initial_metadata(())
        async for logged in self.streams.until_closed(self.watch.follow(position, wanted)):
            yield pb.WatchRecordsResponse(record=convert.logged_record(logged))

    async def GetCheckpoint(self, request: pb.GetCheckpointRequest, context: Any) -> pb.GetCheckpointResponse:
        return pb.GetCheckpointResponse(checkpoint=convert.checkpoint_message(await self.checkpoints.current()))

    async def ExportRecords(
        self, request: pb.ExportRecordsRequest, context: Any
    ) -> AsyncIterator[pb.ExportRecordsResponse]:
        asked = convert_export.asked_of(request)
        async for part in self.streams.until_closed(self.export(asked)):
            yield convert_export.part_message(part, self.origin)
