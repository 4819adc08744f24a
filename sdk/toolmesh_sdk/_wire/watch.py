"""A watch that outlives its streams: it resumes after the last record it saw, so nothing is missed or repeated."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

from toolmesh.audit.v1 import audit_record_pb2, audit_service_pb2, checkpoint_pb2
from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk._wire.retry import Attempts, RetryPolicy
from toolmesh_sdk.errors import ToolmeshError, error_of

# Proxies on the way end streams that are old or quiet for half an hour; ours ends before that and is opened again.
STREAM_SECONDS = 1500.0
# A lost watch is given about a minute to come back, so that it outlives the restart of a service.
_PATIENCE = 6
_QUIET_SECONDS = 60.0
# Servers answer a little before a deadline; a stream that lived this much of its time is over, not broken.
_LIVED = 0.8


def log_size(checkpoint: checkpoint_pb2.Checkpoint) -> int:
    """Return how many records the log held at a checkpoint, which itself counts those of one shard."""
    return checkpoint.first_sequence + checkpoint.tree_size


class Watch:
    """Where a watch stands: the next sequence to ask for, the time it has, and the failures since its last progress."""

    def __init__(
        self,
        request: audit_service_pb2.WatchRecordsRequest,
        policy: RetryPolicy,
        timeout: float | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.request, self._monotonic = request, monotonic
        self._policy = dataclasses.replace(policy, attempts=1 + (policy.attempts - 1) * _PATIENCE)
        self._end = math.inf if timeout is None else monotonic() + timeout
        self._attempts = self._fresh()
        self._opened_at = self._lived_at = monotonic()
        self._renewed = False
        """True if the last stream ended with its token and the next has shown nothing yet."""

    def next_stream(self) -> float | None:
        """Return how long the next stream may last; None when the watch is over."""
        self._opened_at = self._monotonic()
        seconds = min(STREAM_SECONDS, self._end - self._opened_at)
        self._lived_at = self._opened_at + seconds * _LIVED
        self._attempts.begin()
        return seconds if seconds > 0 else None

    def saw(self, record: audit_record_pb2.LoggedRecord) -> None:
        """Note a record: the next stream begins behind it."""
        self.request.from_sequence = record.sequence + 1
        self._attempts, self._renewed = self._fresh(), False

    def wait_after(self, error: ToolmeshError | None) -> float:
        """Return how long to wait before the next stream. Raises the error when there must not be one.

        A stream that reached its deadline did what it should; one that the server closed is a failure like others.
        """
        if error is not None and error.reason is Reason.DEADLINE_EXCEEDED and self._monotonic() >= self._lived_at:
            self._attempts = self._fresh()
            return 0.0
        if self._monotonic() - self._opened_at > _QUIET_SECONDS:
            # It was open and had nothing to say: that is no reason to lose patience.
            self._attempts, self._renewed = self._fresh(), False
            self._attempts.begin()
        if error is not None and error.reason is Reason.TOKEN_EXPIRED and not self._renewed:
            # A stream ends with its token. Whoever supplies tokens by a function has another one by now; the same one is refused again.
            self._renewed = True
            return 0.0
        failure = error or error_of(Reason.SERVICE_UNAVAILABLE, message="The watch was closed.", answered=False)
        wait = self._attempts.wait_after(failure)
        if wait is None:
            raise failure
        return wait

    def _fresh(self) -> Attempts:
        left = max(0.0, self._end - self._monotonic())
        return Attempts(self._policy, left, repeatable=True, monotonic=self._monotonic)
