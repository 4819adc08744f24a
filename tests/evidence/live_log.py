"""A real audit service in a thread, on a real database, over mutual TLS."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import log_service_pb2
from toolmesh.audit.v1.audit_service_pb2_grpc import AuditServiceStub
from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub
from toolmesh_sdk._wire.connection import Tls
from toolmesh_sdk._wire.transport import ClientOptions, Transport
from toolmesh_sdk.audit.remote import RemoteLog

from libs.common.ids import new_id
from libs.common.runtime.settings import load
from libs.common.telemetry.log import Log as Logger
from libs.common.telemetry.spans import Tracing
from services.audit.config import Settings
from services.audit.wiring import build

QUIET = Logger("test", level="error", descriptor=2)
BEGIN = datetime(2026, 11, 15, 8, tzinfo=UTC)


class LiveLog:
    """A running log, with connections for writers and verifiers."""

    def __init__(self, port: int, pki: Any) -> None:
        self.address, self._pki = f"127.0.0.1:{port}", pki
        self._open: list[Transport] = []

    def transport(self, peer: str) -> Transport:
        """Connect as a peer."""
        own = self._pki.of(peer)
        tls = Tls(self._pki.ca, own.cert, own.key, server_name="audit")
        self._open.append(Transport(self.address, tls, ClientOptions()))
        return self._open[-1]

    def remote(self) -> RemoteLog:
        """Connect as the operator, for verification."""
        return RemoteLog(self.transport("operator"), 60)

    def append(self, records: Sequence[record_pb.AuditRecord]) -> int:
        """Append one batch; return the last sequence."""
        batch = pb.AppendRecordsRequest(batch=1, records=records)
        [answer] = AuditServiceStub(self.transport("executor").channel).AppendRecords(iter([batch]), timeout=60)
        return int(answer.last_sequence)

    def checkpoint(self) -> Any:
        """Make the log sign a checkpoint."""
        return self.remote().checkpoint()

    def close_shard(self, number: int) -> None:
        """Close a shard."""
        request = log_service_pb2.CloseShardRequest(shard=number)
        LogServiceStub(self.transport("operator").channel).CloseShard(request, timeout=60)

    def erase(self, sequence: int) -> int:
        """Erase a payload; return the sequence of the erasure record."""
        request = log_service_pb2.ErasePayloadRequest(sequence=sequence, reason="asked for")
        return int(LogServiceStub(self.transport("operator").channel).ErasePayload(request, timeout=60).erased_by)

    def archive(self, shard: int, digest: str, *, drop: bool = False) -> None:
        """Register the archive of a shard, or drop its records."""
        request = log_service_pb2.ArchiveShardRequest(shard=shard, manifest_digest=digest, drop_records=drop)
        LogServiceStub(self.transport("operator").channel).ArchiveShard(request, timeout=60)

    def hang_up(self) -> None:
        """Close all connections."""
        for transport in self._open:
            transport.close()


class ConnectionLostError(grpc.RpcError):
    """A broken connection."""

    def code(self) -> Any:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "lost"

    def trailing_metadata(self) -> Any:
        return ()


def break_first_export(
    remote: RemoteLog, shard: int, meanwhile: Callable[[], Any] = lambda: None, behind: str = "records"
) -> list[int]:
    """Break the first export of a shard after its first page, or after its header, and call `meanwhile` before it
    resumes. Return the list of first sequences of its streams, which grows with each stream."""
    ask, begun = remote._audit.ExportRecords, []

    class Stream:
        def __init__(self, request: Any, **options: Any) -> None:
            self._stream = ask(request, **options)

        def __iter__(self) -> Any:
            breaks = False
            for part in self._stream:
                if part.WhichOneof("part") == "header" and part.header.shard.number == shard:
                    begun.append(part.header.first_sequence)
                    breaks = len(begun) == 1
                yield part
                if part.WhichOneof("part") == behind and breaks:
                    meanwhile()
                    raise ConnectionLostError

        def cancel(self) -> None:
            self._stream.cancel()

    remote._audit.ExportRecords = Stream  # type: ignore[method-assign, assignment]
    return begun


@contextmanager
def run_service(environment: dict[str, str], pki: Any) -> Iterator[LiveLog]:
    """Run the service with an environment."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> Any:
        made = await build(load(Settings, environment), QUIET, Tracing())
        await made.start()
        return made

    try:
        application = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
        log = LiveLog(application.server.port, pki)
        try:
            yield log
        finally:
            log.hang_up()
            asyncio.run_coroutine_threadsafe(application.stop(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


def records(count: int, begin: int = 0) -> list[record_pb.AuditRecord]:
    """Return records one second apart."""
    return [_record(begin + number) for number in range(count)]


def _record(number: int) -> record_pb.AuditRecord:
    stamp = Timestamp()
    stamp.FromDatetime(BEGIN + timedelta(seconds=number))
    return record_pb.AuditRecord(
        record_id=new_id(),
        event_class=record_pb.EVENT_CLASS_INVOCATION_SUCCEEDED,
        event_time=stamp,
        invocation_id=f"inv-{number}",
        tool_version="tools/core.echo/versions/1.0.0",
        arguments_summary=b'{"n":9007199254740993,"text":"gr\xc3\xbc\xc3\x9fe","share":0.1}',
        status=record_pb.RECORD_STATUS_SUCCESS,
        authorization=record_pb.AUTHORIZATION_OUTCOME_ALLOW,
    )
