"""The channel between a running call and its job: reports, questions with their answers, and the cancellation."""

from __future__ import annotations

import _thread
import time

from . import frames
from .responses import ResponsePipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Reports of progress are sent at once up to a burst, then at this rate; the newest of the others is kept.
_PROGRESS_BURST = 100
_PROGRESS_PER_SECOND = 50.0


class Canceled(BaseException):
    """The call should stop. Raised once, by the next method of the call.

    Not an Exception, so that a tool that catches every exception stops all the same.
    """


class CallChannel:
    """The job of one call. Usable in every thread of the tool; a forked child has no job."""

    def __init__(self, invocation_id: str, settings: dict[str, Any], requests: int, responses: ResponsePipe) -> None:
        self.invocation_id = invocation_id
        self.partial_bytes: int = settings["partial_bytes"]
        self.state_bytes: int = settings["state_bytes"]
        self._requests, self._responses = requests, responses
        self._exchanging = _thread.allocate_lock()
        self._number = 0
        self._canceled = self._raised = False
        self._progress: dict[str, Any] | None = None
        self._tokens, self._refilled = float(_PROGRESS_BURST), time.monotonic()

    def progress(self, report: dict[str, Any]) -> None:
        """Report progress, or keep it if the last reports are too recent."""
        self._progress = report
        now = time.monotonic()
        self._tokens = min(_PROGRESS_BURST, self._tokens + (now - self._refilled) * _PROGRESS_PER_SECOND)
        self._refilled = now
        if self._tokens >= 1:
            self._tokens -= 1
            self.flush()

    def flush(self) -> None:
        """Send the progress that was kept."""
        report, self._progress = self._progress, None
        if report is not None:
            self._send("progress", report)

    def report(self, kind: str, fields: dict[str, Any], payload: bytes = b"") -> None:
        """Send a report."""
        self.flush()
        self._send(kind, fields, payload)

    def exchange(self, kind: str, fields: dict[str, Any], payload: bytes) -> dict[str, Any]:
        """Send a report and return the reply to it. Other threads wait for their turn."""
        self.flush()
        with self._exchanging:
            self._number += 1
            number = self._number
            self._send(kind, {**fields, "number": number}, payload)
            while True:
                frame = self._receive()
                if frame is None or frame.get("reply") == number:
                    return frame or {"error": {"reason": "INTERNAL", "message": "the executor is gone"}}

    def is_canceled(self, seconds: float = 0.0) -> bool:
        """Return whether the call should stop; wait up to some seconds for it."""
        # Imported here: calls without a job do not use it, and every import slows down a cold start.
        import select

        if not self._canceled and self._exchanging.acquire(False):
            # Otherwise a thread waits for a reply, and notes a cancellation too.
            try:
                if self._responses.is_own and select.select([self._requests], [], [], seconds)[0]:
                    self._receive()
            finally:
                self._exchanging.release()
        elif not self._canceled:
            time.sleep(seconds)
        return self._canceled

    def raise_canceled(self) -> None:
        """Raise Canceled if the call should stop, once: what the tool does to clean up is not interrupted."""
        if self.is_canceled() and not self._raised:
            self._raised = True
            raise Canceled

    def terminate(self) -> None:
        """Raise Canceled now, or as soon as no frame is incomplete. Called by a signal handler."""
        self._canceled = True
        if self._responses.writing:
            self._responses.after_write = self._raise_again
        else:
            self._raise_again()

    def _raise_again(self) -> None:
        self._raised = True
        raise Canceled

    def _receive(self) -> dict[str, Any] | None:
        frame: dict[str, Any] | None = frames.receive(self._requests)
        if frame is None or "cancel" in frame:
            self._canceled = True
        return frame

    def _send(self, kind: str, fields: dict[str, Any], payload: bytes = b"") -> None:
        if self._responses.is_own:
            head = {"id": self.invocation_id, "event": kind, "fields": fields, "payload": len(payload)}
            self._responses.send(frames.early_frame(frames.encode(head), payload))
