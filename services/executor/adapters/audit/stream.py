"""The one stream to the log that all calls share.

One message carries many records, and one message is under way at a time: a message costs as much with one record in it
as with thirty. While a message is under way, records gather for the next. When several calls are active it also waits for
a turn of the event loop in which nobody joined: as long as there is other work nothing is lost by that, and a timer would
wait where there is none. Only a backlog is compressed: what gathers in a moment is sent sooner than it is squeezed.
"""

from __future__ import annotations

import asyncio
import random
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
from libs.common.telemetry.log import Log
from services.executor.adapters.audit.record_encoder import RecordWriter
from services.executor.domain import errors
from services.executor.domain.model import Record

METHOD = "/toolmesh.audit.v1.AuditService/AppendRecords"
# With no more calls than this under way, nobody is worth waiting for.
COMPANY = 3
BATCH_RECORDS, BATCH_BYTES = 500, 1024 * 1024
# More than the contract of a record can add up to.
RECORD_BYTES = 256 * 1024
# So much waiting is a backlog: it goes compressed, until so little is left.
BACKLOG_BYTES, CLEARED_BYTES = 128 * 1024, 16 * 1024
# Longer than the log itself waits for its storage, so that a slow log is not also asked twice.
ACK_SECONDS = 15.0
FLUSH_SECONDS = 1.5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_FOREVER = float("inf")
_REFUSALS = frozenset({Reason.AUDIT_RECORD_INVALID, Reason.INVALID_REQUEST})


@dataclass(slots=True)
class Entry:
    """A record that was handed over. It stays until the log has it, whether or not somebody still waits."""

    record_id: str
    fragment: bytes
    waiter: asyncio.Future[None] | None
    patience: float = _FOREVER
    """Until when somebody waits, on the loop's clock."""
    kept: bool = False
    """True if it is durable elsewhere too, and whoever keeps it wants to know once the log has it or refused it."""
    stored: bool = False
    """True once the log has it. Who waited may have left in the very moment in which it was told so."""
    refused: bool = False
    """True once the log has said that it will not have it."""


class AuditStream:
    """Makes records durable. Never says so without the log's word, and never drops what it took."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        writer: RecordWriter,
        log: Log,
        *,
        active: Callable[[], int],
        settled: Callable[[str, bool], None] = lambda record_id, stored: None,
        capacity: int = 10_000,
        ack_seconds: float = ACK_SECONDS,
    ) -> None:
        # Batches are bytes already, so nothing is left to serialise.
        self._open: Any = channel.stream_stream(METHOD, response_deserializer=pb.AppendRecordsResponse.FromString)
        self._writer, self._log, self._active = writer, log, active
        self._capacity, self._ack_seconds = capacity, ack_seconds
        self._settled = settled
        self._queue: deque[Entry] = deque()
        self._queued_bytes = 0
        self._sent: list[Entry] = []
        self._compressing = self._changing = False
        self._behind = False
        """True while the last that was heard of the log is that it is behind."""
        self._doubtful = 0
        """So many records at the head of the queue were refused together; they go one by one, to find the culprit."""
        self._due, self._empty = asyncio.Event(), asyncio.Event()
        self._lingering: asyncio.Handle | None = None
        self._joined = 0
        """How many waited when the queue was last looked at."""
        self._watch: asyncio.TimerHandle | None = None
        """Rings when the first of those who wait gives up: one timer for all of them, because nearly nobody ever does."""
        self._patience: asyncio.Timeout | None = None
        self._number = 0
        self._acknowledged = 0
        self._running: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many records the log has not confirmed."""
        return len(self._queue) + len(self._sent)

    async def start(self) -> None:
        """Begin to send; does not wait for the log."""
        self._running = asyncio.create_task(self._run_forever(), name="audit-stream")

    async def stop(self) -> None:
        """Send what is left, as far as the log takes it in a moment, and end."""
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
        """Return once the record is durable; raises AUDIT_UNAVAILABLE or AUDIT_BACKPRESSURE after so many seconds, and keeps
        the record."""
        await self.confirmed(self.take(record), within=within)

    def take(self, record: Record) -> Entry:
        """Take a record that somebody is about to wait for. Raises AUDIT_BACKPRESSURE when too much is waiting already."""
        return self._take(record, asyncio.get_running_loop().create_future())

    async def confirmed(self, entry: Entry, *, within: float) -> None:
        """Return once what was taken is durable, like `append`."""
        waiter = entry.waiter
        if waiter is None:
            raise ValueError("nobody may wait for what was left")
        loop = waiter.get_loop()
        entry.patience = loop.time() + within
        if self._watch is None or entry.patience < self._watch.when():
            self._watch_until(entry.patience, loop)
        await waiter

    def leave(self, record: Record) -> None:
        """Take a record that nobody waits for."""
        try:
            self._take(record, None)
        except MeshError:
            self._log.error("record dropped: the log is behind", record_id=record.record_id)

    def forward(self, fragments: Iterable[tuple[str, bytes]]) -> list[asyncio.Future[None]]:
        """Take records that are kept elsewhere, in order; each future is done once the log has its record or refused it."""
        loop, waiters = asyncio.get_running_loop(), []
        for record_id, fragment in fragments:
            waiters.append(loop.create_future())
            self._put(Entry(record_id, fragment, waiters[-1]))
        self._prompt()
        return waiters

    def unsent(self) -> list[Entry]:
        """Return what the log has not confirmed, in order."""
        return [*self._sent, *self._queue]

    def _take(self, record: Record, waiter: asyncio.Future[None] | None) -> Entry:
        # What follows a decision has already happened; it gets room that new work does not.
        if self.waiting >= (2 * self._capacity if record.follows else self._capacity):
            raise errors.log_behind()
        entry = Entry(record.record_id, self._writer.fragment(record), waiter)
        if len(entry.fragment) > RECORD_BYTES:
            raise errors.record_refused()
        self._put(entry)
        self._prompt()
        return entry

    def _put(self, entry: Entry) -> None:
        self._queue.append(entry)
        self._queued_bytes += len(entry.fragment)

    def _watch_until(self, moment: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = loop.call_at(moment, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send away whoever has waited long enough, and look again when the next one has."""
        self._watch = None
        # A loop whose clock is coarser than its timers may ring a little early.
        now, first = loop.time() + 0.001, _FOREVER
        for entry in self.unsent():
            waiter = entry.waiter
            if waiter is None or waiter.done():
                continue
            if entry.patience <= now:
                waiter.set_exception(errors.log_behind() if self._behind else errors.not_recorded())
            else:
                first = min(first, entry.patience)
        if first < _FOREVER:
            self._watch_until(first, loop)

    def _prompt(self) -> None:
        """Have the queue sent: at once when alone, and when nobody joins any more where others are about to."""
        if self._sent:
            return
        if self._active() <= COMPANY:
            self._due.set()
        elif self._lingering is None:
            self._joined = 0
            self._lingering = asyncio.get_running_loop().call_soon(self._lingered)

    def _lingered(self) -> None:
        """Send if nobody joined since the last turn of the loop."""
        self._lingering = None
        if self._sent or not self._queue:
            return
        if len(self._queue) == self._joined:
            self._due.set()
            return
        self._joined = len(self._queue)
        self._lingering = asyncio.get_running_loop().call_soon(self._lingered)

    async def _run_forever(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            before = self._acknowledged
            try:
                await self._converse()
                if self._changing:
                    continue
                self._log.warning("audit stream ended", waiting=self.waiting)
            except grpc.aio.AioRpcError as error:
                self._broken(from_rpc_error(error).reason)
            except TimeoutError:
                self._broken(Reason.DEADLINE_EXCEEDED)
            except Exception as error:
                self._log.error("audit stream failed", cause=error)
            self._return_sent()
            pause = _FIRST_PAUSE if self._acknowledged > before else min(pause * 2, _LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  (spread out, not a secret)

    async def _converse(self) -> None:
        """Send batches and take their acknowledgements until the stream ends, or one of them stays away too long."""
        self._number = 0
        self._changing = False
        self._due.set()
        compression = grpc.Compression.Gzip if self._compressing else grpc.Compression.NoCompression
        call = self._open(compression=compression)
        sending = asyncio.ensure_future(self._send(call))
        try:
            async with asyncio.timeout(None) as self._patience:
                while (ack := await call.read()) is not grpc.aio.EOF:
                    self._acknowledge(ack.batch)
        finally:
            self._patience = None
            sending.cancel()
            call.cancel()
            # What a broken stream says to the sender it says to the reader too.
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, call: Any) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            if self._queue and not self._sent:
                if self._wants_change():
                    await call.done_writing()
                    return
                await call.write(self._next_batch())

    def _wants_change(self) -> bool:
        """Compression is a matter of a whole stream, so a backlog gets one of its own. True if this one should end for that."""
        wanted = self._queued_bytes >= (CLEARED_BYTES if self._compressing else BACKLOG_BYTES)
        self._changing = wanted != self._compressing
        self._compressing = wanted
        return self._changing

    def _return_sent(self) -> None:
        """What was under way on a stream that broke is sent again, first and in order."""
        self._queue.extendleft(reversed(self._sent))
        self._queued_bytes += sum(len(entry.fragment) for entry in self._sent)
        self._sent = []

    def _next_batch(self) -> bytes:
        size, room = 0, 1 if self._doubtful else BATCH_RECORDS
        while self._queue and len(self._sent) < room and size < BATCH_BYTES:
            entry = self._queue.popleft()
            self._sent.append(entry)
            size += len(entry.fragment)
        self._queued_bytes -= size
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time() + self._ack_seconds)
        self._number += 1
        number = pb.AppendRecordsRequest(batch=self._number).SerializeToString()
        return number + b"".join([entry.fragment for entry in self._sent])

    def _acknowledge(self, number: int) -> None:
        if number != self._number or not self._sent:
            raise ValueError("the log acknowledged a batch that was not sent")
        if self._patience is not None:
            self._patience.reschedule(None)
        sent, self._sent = self._sent, []
        self._behind = False
        self._acknowledged += len(sent)
        self._doubtful = max(0, self._doubtful - len(sent))
        for entry in sent:
            entry.stored, waiter = True, entry.waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
            if entry.kept:
                self._settled(entry.record_id, True)
        if self._queue:
            self._prompt()
        else:
            self._empty.set()

    def _broken(self, reason: Reason) -> None:
        """Note why a stream ended. A refused batch goes again record by record; a record that is refused alone is dropped."""
        self._log.warning("audit stream broke", reason=reason.name, waiting=self.waiting)
        self._behind = reason is Reason.AUDIT_BACKPRESSURE
        if reason not in _REFUSALS or not self._sent:
            return
        if len(self._sent) > 1:
            self._doubtful = len(self._sent)
            return
        self._doubtful = max(0, self._doubtful - 1)
        refused = self._sent.pop()
        refused.refused = True
        self._log.error("record refused by the log", record_id=refused.record_id)
        if refused.waiter is not None and not refused.waiter.done():
            refused.waiter.set_exception(errors.record_refused())
        if refused.kept:
            self._settled(refused.record_id, False)
