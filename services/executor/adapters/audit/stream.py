"""The stream to the audit log that all calls share.

Records are sent in batches, one batch at a time: a message costs about the same with one record as with thirty. While a
batch is in flight, records queue for the next one. If several calls are active, sending also waits for an iteration of
the event loop in which no record was added. That adds no delay while other work runs; a timer would. Only a backlog is
compressed, because compressing a small batch takes longer than sending it.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from toolmesh.audit.v1 import audit_service_pb2 as pb

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.backoff import Backoff
from libs.common.telemetry.log import Log
from services.executor.adapters.audit.record_encoder import RecordEncoder, decode_fragment, encode_fragment
from services.executor.adapters.audit.reduced_record import reduce_form
from services.executor.domain import errors
from services.executor.domain.model import Record

METHOD = "/toolmesh.audit.v1.AuditService/AppendRecords"
# With at most so many active calls, batches are sent without waiting for more records.
MAX_CALLS_UNBATCHED = 3
BATCH_RECORDS, BATCH_BYTES = 500, 1024 * 1024
# Larger than any record that satisfies the contract.
RECORD_BYTES = 256 * 1024
# Compression starts at the first size of the queue and stops below the second.
BACKLOG_BYTES, CLEARED_BYTES = 128 * 1024, 16 * 1024
# Longer than the log's own storage timeout, so that a slow log does not get its batches twice.
ACK_SECONDS = 15.0
FLUSH_SECONDS = 1.5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_NEVER = float("inf")
# The position of a record in its batch, at the start of a violation's path.
_POSITION = re.compile(r"^(?:canonical_)?records\[\d+\]\.?")
_REFUSALS = frozenset({Reason.AUDIT_RECORD_INVALID, Reason.INVALID_REQUEST})


@dataclass(slots=True)
class PendingRecord:
    """A record that the log has not confirmed. It stays queued even if its caller no longer waits."""

    record_id: str
    encoded: bytes
    waiter: asyncio.Future[None] | None
    deadline: float = _NEVER
    """The end of the caller's wait, on the loop's clock."""
    in_outbox: bool = False
    """True if the outbox holds it too and must learn the log's answer."""
    stored: bool = False
    """True once the log has it; the waiter may have been canceled at the same moment."""
    refused: bool = False
    """True once the log has refused it, in its reduced form too if it has one."""
    record: Record | None = None
    """None if it comes from the outbox."""
    reduced: bool = False
    """True if `encoded` is the reduced form."""
    reducible: bool = True
    """False for a record that its call depends on: its refusal ends the call, which then records its outcome."""


class AuditStream:
    """Sends records to the log. Confirms a record only after the log's acknowledgement and never drops a queued one."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        encoder: RecordEncoder,
        log: Log,
        *,
        active: Callable[[], int],
        on_settled: Callable[[str, bool], None] = lambda record_id, stored: None,
        capacity: int = 10_000,
        ack_seconds: float = ACK_SECONDS,
    ) -> None:
        # No request serializer: batches are already bytes.
        self._open: Any = channel.stream_stream(METHOD, response_deserializer=pb.AppendRecordsResponse.FromString)
        self._encoder, self._log, self._active = encoder, log, active
        self._capacity, self._ack_seconds = capacity, ack_seconds
        self._on_settled = on_settled
        self._queue: deque[PendingRecord] = deque()
        self._queued_bytes = 0
        self._in_flight: list[PendingRecord] = []
        self._compressing = self._switching = False
        self._log_behind = False
        """True if the log's last answer was AUDIT_BACKPRESSURE."""
        self._suspects = 0
        """The number of records at the head of the queue whose batch was refused; they are sent one by one."""
        self._due, self._empty = asyncio.Event(), asyncio.Event()
        self._idle_check: asyncio.Handle | None = None
        self._last_length = 0
        """The queue length at the last idle check."""
        self._timer: asyncio.TimerHandle | None = None
        """Fires at the earliest deadline of all waiters. One timer for all, because deadlines are rarely reached."""
        self._ack_timeout: asyncio.Timeout | None = None
        self._batch_number = 0
        self._acknowledged = 0
        self._running: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """The number of records that the log has not confirmed."""
        return len(self._queue) + len(self._in_flight)

    async def start(self) -> None:
        """Start sending. Does not wait for the log."""
        self._running = asyncio.create_task(self._run_forever(), name="audit-stream")

    async def stop(self) -> None:
        """Flush the queue for at most FLUSH_SECONDS and stop."""
        if self._running is None:
            return
        self._due.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                while self.waiting:
                    self._empty.clear()
                    await self._empty.wait()
        self._running.cancel()
        await asyncio.wait([self._running])

    async def append(self, record: Record, *, within: float) -> None:
        """Queue a record that its call depends on and wait until it is durable. Raises AUDIT_UNAVAILABLE or
        AUDIT_BACKPRESSURE after `within` seconds; the record stays queued. Raises AUDIT_RECORD_INVALID if the log
        refuses
        it."""
        pending = self._enqueue(record, asyncio.get_running_loop().create_future(), reducible=False)
        await self.wait_confirmed(pending, within=within)

    def enqueue(self, record: Record) -> PendingRecord:
        """Queue a record of what has happened, for `wait_confirmed`. If the log refuses it, its reduced form is sent.
        Raises AUDIT_BACKPRESSURE if the queue is full."""
        return self._enqueue(record, asyncio.get_running_loop().create_future(), reducible=True)

    async def wait_confirmed(self, pending: PendingRecord, *, within: float) -> None:
        """Wait until a queued record is durable; raises like `append`."""
        waiter = pending.waiter
        if waiter is None:
            raise ValueError("the record was queued without a waiter")
        loop = waiter.get_loop()
        pending.deadline = loop.time() + within
        if self._timer is None or pending.deadline < self._timer.when():
            self._set_timer(pending.deadline, loop)
        await waiter

    def enqueue_unawaited(self, record: Record) -> None:
        """Queue a record without a waiter. A record that does not fit is logged and dropped."""
        try:
            self._enqueue(record, None, reducible=True)
        except MeshError:
            self._log.error("record dropped: the log is behind", record_id=record.record_id)

    def enqueue_encoded(self, records: Iterable[tuple[str, bytes]]) -> list[asyncio.Future[None]]:
        """Queue records of the outbox in order. Each future is done once the log has its record or refused it."""
        loop, waiters = asyncio.get_running_loop(), []
        for record_id, encoded in records:
            waiters.append(loop.create_future())
            pending = PendingRecord(record_id, encoded, waiters[-1])
            if len(encoded) > RECORD_BYTES:
                self._reduce(pending, "", "record.max_bytes")
            self._put(pending)
        self._schedule_send()
        return waiters

    def unconfirmed(self) -> list[PendingRecord]:
        """Return the records that the log has not confirmed, in order."""
        return [*self._in_flight, *self._queue]

    def _enqueue(self, record: Record, waiter: asyncio.Future[None] | None, *, reducible: bool) -> PendingRecord:
        # Records that follow a decision describe what has already happened, so they get twice the capacity.
        if self.waiting >= (2 * self._capacity if record.follows else self._capacity):
            raise errors.log_behind()
        pending = PendingRecord(
            record.record_id, self._encoder.encode(record), waiter, record=record, reducible=reducible
        )
        if len(pending.encoded) > RECORD_BYTES and not self._reduce(pending, "", "record.max_bytes"):
            raise errors.record_refused()
        self._put(pending)
        self._schedule_send()
        return pending

    def _put(self, pending: PendingRecord) -> None:
        self._queue.append(pending)
        self._queued_bytes += len(pending.encoded)

    def _set_timer(self, moment: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(moment, self._expire_waiters, loop)

    def _expire_waiters(self, loop: asyncio.AbstractEventLoop) -> None:
        """Fail the waiters whose deadline has passed, and set the timer for the next deadline."""
        self._timer = None
        # A coarse loop clock may fire the timer slightly early.
        now, earliest = loop.time() + 0.001, _NEVER
        for pending in self.unconfirmed():
            waiter = pending.waiter
            if waiter is None or waiter.done():
                continue
            if pending.deadline <= now:
                waiter.set_exception(errors.log_behind() if self._log_behind else errors.not_recorded())
            else:
                earliest = min(earliest, pending.deadline)
        if earliest < _NEVER:
            self._set_timer(earliest, loop)

    def _schedule_send(self) -> None:
        """Send the queue now if few calls are active, otherwise once no more records are being added."""
        if self._in_flight:
            return
        if self._active() <= MAX_CALLS_UNBATCHED:
            self._due.set()
        elif self._idle_check is None:
            self._last_length = 0
            self._idle_check = asyncio.get_running_loop().call_soon(self._send_if_idle)

    def _send_if_idle(self) -> None:
        """Send if no record was added since the last iteration of the loop."""
        self._idle_check = None
        if self._in_flight or not self._queue:
            return
        if len(self._queue) == self._last_length:
            self._due.set()
            return
        self._last_length = len(self._queue)
        self._idle_check = asyncio.get_running_loop().call_soon(self._send_if_idle)

    async def _run_forever(self) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            before = self._acknowledged
            try:
                await self._exchange_batches()
                if self._switching:
                    continue
                self._log.warning("audit stream ended", waiting=self.waiting)
            except grpc.aio.AioRpcError as error:
                self._on_broken(from_rpc_error(error))
            except TimeoutError:
                self._on_broken(MeshError(Reason.DEADLINE_EXCEEDED))
            except Exception as error:
                self._log.error("audit stream failed", cause=error)
            self._requeue_in_flight()
            if self._acknowledged > before:
                backoff.reset()
            await backoff.wait()

    async def _exchange_batches(self) -> None:
        """Send batches and read their acknowledgements until the stream ends or an acknowledgement is overdue."""
        self._batch_number = 0
        self._switching = False
        self._due.set()
        compression = grpc.Compression.Gzip if self._compressing else grpc.Compression.NoCompression
        call = self._open(compression=compression)
        sending = asyncio.ensure_future(self._send(call))
        try:
            async with asyncio.timeout(None) as self._ack_timeout:
                while (ack := await call.read()) is not grpc.aio.EOF:
                    self._acknowledge(ack)
        finally:
            self._ack_timeout = None
            sending.cancel()
            call.cancel()
            # The reader gets the same error of a broken stream as the sender.
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, call: Any) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            if self._queue and not self._in_flight:
                if self._must_switch_compression():
                    await call.done_writing()
                    return
                await call.write(self._next_batch())

    def _must_switch_compression(self) -> bool:
        """Return True if this stream must end, because compression is a property of a whole stream."""
        wanted = self._queued_bytes >= (CLEARED_BYTES if self._compressing else BACKLOG_BYTES)
        self._switching = wanted != self._compressing
        self._compressing = wanted
        return self._switching

    def _requeue_in_flight(self) -> None:
        """Put the records of a broken stream back at the head of the queue, in order."""
        self._queue.extendleft(reversed(self._in_flight))
        self._queued_bytes += sum(len(pending.encoded) for pending in self._in_flight)
        self._in_flight = []

    def _next_batch(self) -> bytes:
        size, max_records = 0, 1 if self._suspects else BATCH_RECORDS
        while self._queue and len(self._in_flight) < max_records and size < BATCH_BYTES:
            pending = self._queue.popleft()
            self._in_flight.append(pending)
            size += len(pending.encoded)
        self._queued_bytes -= size
        if self._idle_check is not None:
            self._idle_check.cancel()
            self._idle_check = None
        if self._ack_timeout is not None:
            self._ack_timeout.reschedule(asyncio.get_running_loop().time() + self._ack_seconds)
        self._batch_number += 1
        head = pb.AppendRecordsRequest(batch=self._batch_number, return_partial_success=True).SerializeToString()
        return head + b"".join([pending.encoded for pending in self._in_flight])

    def _acknowledge(self, ack: pb.AppendRecordsResponse) -> None:
        if ack.batch != self._batch_number or not self._in_flight:
            raise ValueError("the log acknowledged a batch that was not sent")
        if self._ack_timeout is not None:
            self._ack_timeout.reschedule(None)
        answered, self._in_flight = self._in_flight, []
        self._log_behind = False
        self._acknowledged += len(answered)
        self._suspects = max(0, self._suspects - len(answered))
        refused = {refusal.index: refusal for refusal in ack.refused}
        for index, pending in enumerate(answered):
            if index not in refused:
                self._confirm(pending)
        for index in sorted(refused, reverse=True):
            self._refuse(answered[index], refused[index].path, refused[index].rule)
        if self._queue:
            self._schedule_send()
        else:
            self._empty.set()

    def _confirm(self, pending: PendingRecord) -> None:
        pending.stored, waiter = True, pending.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if pending.in_outbox:
            self._on_settled(pending.record_id, True)

    def _refuse(self, pending: PendingRecord, path: str, rule: str) -> bool:
        """Queue the reduced form of a refused record first and return True; without one, tell its waiter and the
        outbox."""
        self._log.error("record refused by the log", record_id=pending.record_id, path=path, rule=rule)
        if self._reduce(pending, path, rule):
            self._queue.appendleft(pending)
            self._queued_bytes += len(pending.encoded)
            return True
        pending.refused = True
        if pending.waiter is not None and not pending.waiter.done():
            pending.waiter.set_exception(errors.record_refused())
        if pending.in_outbox:
            self._on_settled(pending.record_id, False)
        return False

    def _on_broken(self, error: MeshError) -> None:
        """Handle a broken stream. A log that does not answer for each record ends the stream for a refused one: the
        batch is then sent again record by record."""
        self._log.warning("audit stream broke", reason=error.reason.name, waiting=self.waiting)
        self._log_behind = error.reason is Reason.AUDIT_BACKPRESSURE
        if error.reason not in _REFUSALS or not self._in_flight:
            return
        if len(self._in_flight) > 1:
            self._suspects = len(self._in_flight)
            return
        path, rule = (
            (error.violations[0].path, error.violations[0].rule)
            if error.violations
            else ("", error.reason.name.lower())
        )
        if not self._refuse(self._in_flight.pop(), _POSITION.sub("", path), rule):
            self._suspects = max(0, self._suspects - 1)

    def _reduce(self, pending: PendingRecord, path: str, rule: str) -> bool:
        """Replace the encoded record by its reduced form; return False if there is none."""
        if pending.reduced or not pending.reducible:
            return False
        form = reduce_form(decode_fragment(pending.encoded), path, rule)
        if not form and pending.record is not None:
            # A summary that is not JSON makes the whole record unreadable.
            form = reduce_form(decode_fragment(self._encoder.encode_without_summaries(pending.record)), path, rule)
        if form:
            pending.encoded, pending.reduced = encode_fragment(form), True
        return pending.reduced
