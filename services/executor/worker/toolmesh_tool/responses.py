"""The pipe on which a worker sends frames to the executor."""

from __future__ import annotations

import _thread
import os

from . import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class ResponsePipe:
    """Sends complete frames, whatever threads and signal handlers send at the same time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._process = os.getpid()
        # Reentrant, because a signal handler may send while the thread that it interrupts does.
        self._lock = _thread.RLock()
        self._queued: list[bytes] = []
        self._writing = False
        self.after_write: Callable[[], None] | None = None
        """Called when all frames are complete; it may raise. A signal handler sets it."""

    @property
    def is_own(self) -> bool:
        """False in a forked child, which shares the pipe: its frames could fall into the middle of another."""
        return os.getpid() == self._process

    @property
    def writing(self) -> bool:
        """True while a frame is incomplete."""
        return self._writing

    def send(self, data: bytes) -> None:
        """Send a frame, or let the interrupted thread send it after its own."""
        with self._lock:
            self._queued.append(data)
            if self._writing:
                return
            self._writing = True
            try:
                while self._queued:
                    frames.write(self._descriptor, self._queued.pop(0))
            finally:
                self._writing = False
            callback, self.after_write = self.after_write, None
        if callback is not None:
            callback()
