"""gRPC handlers of AuditService, in the order of the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc

from libs.common.call_context import serving
from libs.common.rpc.stream_slots import StreamSlots, stream_holder
from services.audit.convert import audit as convert
from services.audit.convert import export as convert_export
from services.audit.domain.evidence.checkpoints import CheckpointSigner
from services.audit.domain.export.export_records import ExportRecords
from services.audit.domain.log.append_batch import append_accepted, append_all
from services.audit.domain.log.append_records import AppendRecords, BatchSequence
from services.audit.domain.log.get_record import get_record
from services.audit.domain.log.query_records import query_records
from services.audit.domain.log.watch_records import WatchRecords
from services.audit.domain.merkle.note import Origin
from services.audit.domain.ports import LogReader
from services.audit.open_streams import OpenStreams


@dataclass(frozen=True)
class AuditHandlers(rpc.AuditServiceServicer):
    """Implements AuditService."""

    log: LogReader
    appender: AppendRecords
    watch: WatchRecords
    checkpoints: CheckpointSigner
    streams: OpenStreams
    exporter: ExportRecords
    origin: Origin
    slots: StreamSlots

    async def AppendRecords(
        self, request_iterator: AsyncIterator[pb.AppendRecordsRequest], context: Any
    ) -> AsyncIterator[pb.AppendRecordsResponse]:
        writer, batches = serving().peer, BatchSequence()
        async for request in self.streams.until_closed(request_iterator):
            batches.accept(request.batch)
            append = append_accepted if request.return_partial_success else append_all
            appended = await append(self.appender, convert.candidates_of(request, writer))
            yield convert.appended_message(request.batch, appended)

    async def GetRecord(self, request: pb.GetRecordRequest, context: Any) -> pb.GetRecordResponse:
        record = await get_record(self.log, request.name, serving().tenant)
        return pb.GetRecordResponse(record=convert.logged_record(record))

    async def QueryRecords(self, request: pb.QueryRecordsRequest, context: Any) -> pb.QueryRecordsResponse:
        return convert.page_message(await query_records(self.log, convert.query_of(request, serving().tenant)))

    async def WatchRecords(
        self, request: pb.WatchRecordsRequest, context: Any
    ) -> AsyncIterator[pb.WatchRecordsResponse]:
        record_filter = convert.filter_of(request.filter, serving().tenant)
        with self.slots.hold(*stream_holder()):
            position = await self.watch.begin(request.from_sequence)
            # Sent before the first record, so that the client knows from when on the watch is complete.
            await context.send_initial_metadata(())
            async for logged in self.streams.until_closed(self.watch.follow(position, record_filter)):
                yield pb.WatchRecordsResponse(record=convert.logged_record(logged))

    async def GetCheckpoint(self, request: pb.GetCheckpointRequest, context: Any) -> pb.GetCheckpointResponse:
        return pb.GetCheckpointResponse(checkpoint=convert.checkpoint_message(await self.checkpoints.current()))

    async def ExportRecords(
        self, request: pb.ExportRecordsRequest, context: Any
    ) -> AsyncIterator[pb.ExportRecordsResponse]:
        export = convert_export.export_request(request)
        with self.slots.hold(*stream_holder()):
            async for part in self.streams.until_closed(self.exporter.stream(export)):
                yield convert_export.part_message(part, self.origin)
