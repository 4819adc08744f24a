"""Keeps a watch alive across streams, without missing or repeating anything: of the audit log, or of an invocation."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

from toolmesh.audit.v1 import audit_record_pb2, audit_service_pb2, checkpoint_pb2
from toolmesh.common.v1.error_table import Reason
from toolmesh.executor.v1 import invocation_pb2, invocation_service_pb2

from toolmesh_sdk._wire.retry import Attempts, RetryPolicy
from toolmesh_sdk.errors import ToolmeshError, error_for_reason

# Proxies end streams after half an hour; a stream ends before that and is reopened.
STREAM_SECONDS = 1500.0
# About a minute without progress, so that a watch survives the restart of a service.
_MAX_ATTEMPTS = 19
_QUIET_SECONDS = 60.0
# A stream confirms its events this often. The server sends 256 more than were confirmed.
ACKNOWLEDGE_EVENTS = 64
# Servers end a stream slightly before its deadline; after this share of its time it is over, not broken.
_COMPLETE_SHARE = 0.8


def log_size(checkpoint: checkpoint_pb2.Checkpoint) -> int:
    """Return the size of the whole log at a checkpoint, which counts only its own shard."""
    return checkpoint.first_sequence + checkpoint.tree_size


class ResumedStream:
    """The state of a watch: the remaining time, and the failures since the last progress."""

    def __init__(
        self,
        policy: RetryPolicy,
        timeout: float | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._policy = dataclasses.replace(policy, attempts=min(policy.attempts or _MAX_ATTEMPTS, _MAX_ATTEMPTS))
        self._end = math.inf if timeout is None else monotonic() + timeout
        self._attempts = self._new_attempts()
        self._opened_at = self._complete_at = monotonic()
        self._renewed = False
        """True if the last stream ended because its token expired, and no record came since."""

    def next_stream(self) -> float | None:
        """Return the timeout of the next stream; None if the watch is over."""
        self._opened_at = self._monotonic()
        seconds = min(STREAM_SECONDS, self._end - self._opened_at)
        self._complete_at = self._opened_at + seconds * _COMPLETE_SHARE
        self._attempts.start()
        return seconds if seconds > 0 else None

    def note_progress(self) -> None:
        """Start the attempts over: something was received."""
        self._attempts, self._renewed = self._new_attempts(), False

    def wait_after(self, error: ToolmeshError | None) -> float:
        """Return the wait before the next stream. Raises the error if there must not be one.

        A stream that reached its deadline is a success; one that the server closed is a failure. A proxy may reset a
        stream at its deadline, before the client has noticed it.
        """
        ended = error is not None and (error.reason is Reason.DEADLINE_EXCEEDED or not error.answered)
        if ended and self._monotonic() >= self._complete_at:
            self._attempts = self._new_attempts()
            return 0.0
        if self._monotonic() - self._opened_at > _QUIET_SECONDS:
            # A long stream without records is healthy, so the attempts start over.
            self._attempts, self._renewed = self._new_attempts(), False
            self._attempts.start()
        if error is not None and error.reason is Reason.TOKEN_EXPIRED and not self._renewed:
            # A stream ends when its token expires. A token function may return a new one; the same token fails again.
            self._renewed = True
            return 0.0
        failure = error or error_for_reason(Reason.SERVICE_UNAVAILABLE, message="The watch was closed.", answered=False)
        wait = self._attempts.wait_after(failure)
        if wait is None:
            raise failure
        return wait

    def _new_attempts(self) -> Attempts:
        remaining = max(0.0, self._end - self._monotonic())
        return Attempts(self._policy, remaining, repeatable=True, monotonic=self._monotonic)


class Watch(ResumedStream):
    """A watch of the audit log."""

    def __init__(
        self,
        request: audit_service_pb2.WatchRecordsRequest,
        policy: RetryPolicy,
        timeout: float | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(policy, timeout, monotonic)
        self.request = request

    def advance(self, record: audit_record_pb2.LoggedRecord) -> None:
        """Move past a record: the next stream starts after it."""
        self.request.from_sequence = record.sequence + 1
        self.note_progress()


class InvocationWatch(ResumedStream):
    """A watch of an invocation."""

    def __init__(
        self,
        request: invocation_service_pb2.WatchInvocationRequest,
        policy: RetryPolicy,
        timeout: float | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(policy, timeout, monotonic)
        self.request, self.ended = request, False

    def advance(self, message: invocation_service_pb2.WatchInvocationResponse) -> invocation_pb2.InvocationEvent | None:
        """Move past an event and return it; None for a sign of life. There is no stream after the last event."""
        self.note_progress()
        if not message.HasField("event"):
            return None
        self.request.after_sequence, self.ended = message.event.sequence, message.event.HasField("ended")
        return message.event


class StreamSession(ResumedStream):
    """A stream that runs an invocation, across connections."""

    def __init__(
        self,
        start: invocation_service_pb2.StartInvocationRequest | None,
        name: str,
        after: int,
        policy: RetryPolicy,
        timeout: float | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts an invocation, or attaches to the one of the name."""
        super().__init__(policy, timeout, monotonic)
        self._start, self.name, self._after, self._acknowledged = start, name, after, after
        self.last: invocation_pb2.Invocation | None = None
        """The invocation once it ended."""

    def first_message(self) -> invocation_service_pb2.StreamInvocationRequest:
        """Return what opens the next stream: the start until the invocation has a name, then an attachment."""
        if not self.name:
            return invocation_service_pb2.StreamInvocationRequest(start=self._start)
        attach = invocation_service_pb2.AttachInvocation(name=self.name, after_sequence=self._after)
        return invocation_service_pb2.StreamInvocationRequest(attach=attach)

    def advance(
        self, message: invocation_service_pb2.StreamInvocationResponse
    ) -> invocation_pb2.InvocationEvent | None:
        """Move past a message; return the event that it brings, if any."""
        self.note_progress()
        if message.HasField("invocation"):
            self.name = message.invocation.name
        if not message.HasField("event"):
            return None
        self._after = message.event.sequence
        if message.event.HasField("ended"):
            self.last = message.event.ended
        return message.event

    def due_acknowledgement(self) -> invocation_service_pb2.StreamInvocationRequest | None:
        """Return what confirms the events so far, from time to time."""
        if self._after - self._acknowledged < ACKNOWLEDGE_EVENTS:
            return None
        self._acknowledged = self._after
        acknowledge = invocation_service_pb2.AcknowledgeEvents(sequence=self._after)
        return invocation_service_pb2.StreamInvocationRequest(acknowledge=acknowledge)
