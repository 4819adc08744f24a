"""Sends what a tool prints and logs to the executor while it runs, as frames that name the call."""

from __future__ import annotations

import _thread
import io
import os
import sys

from . import frames
from .responses import ResponsePipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_CHARACTERS = 32_768
"""The most that a call may print and log; the rest is counted."""
MAX_FRAMES = 4000
# A character takes at most six bytes in JSON.
_FRAME_CHARACTERS = 600
STDOUT, STDERR, LOG = "stdout", "stderr", "log"


class ToolOutput:
    """The output of one call at a time. What is written while the tool is loaded belongs to the first call."""

    def __init__(self, responses: ResponsePipe) -> None:
        self._responses = responses
        # Reentrant, because a signal handler may print while a frame is sent.
        self._lock = _thread.RLock()
        self._invocation_id = ""
        self._loading: list[tuple[str, str]] | None = []
        self._left, self._frames_left, self._omitted = MAX_CHARACTERS, MAX_FRAMES, 0
        self._streams = [(STDOUT, self._open(STDOUT, 1)), (STDERR, self._open(STDERR, 2))]

    def install(self) -> None:
        """Make the streams standard output and error. A former call may have replaced or closed them."""
        self._streams = [
            (name, self._open(name, number) if stream.closed else stream)
            for number, (name, stream) in enumerate(self._streams, start=1)
        ]
        sys.stdout, sys.stderr = (stream for _, stream in self._streams)

    def begin(self, invocation_id: str) -> None:
        """Begin the output of a call."""
        self.install()
        with self._lock:
            loading, self._loading = self._loading or [], None
            self._invocation_id = invocation_id
            self._left, self._frames_left, self._omitted = MAX_CHARACTERS, MAX_FRAMES, 0
        for source, text in loading:
            self.write(source, text)

    def end(self) -> None:
        """End the output of the call. What is written later goes nowhere."""
        for _, stream in self._streams:
            try:
                stream.flush()
            except Exception:  # noqa: S112  (the tool closed or detached it)
                continue
        with self._lock:
            if self._omitted:
                self._send({"omitted": self._omitted})
            self._invocation_id = ""

    def write(self, source: str, text: str) -> None:
        """Send text of the call that is under way."""
        if not self._responses.is_own:
            return
        with self._lock:
            if self._loading is not None:
                kept = text[: self._left]
                self._left -= len(kept)
                self._loading.append((source, kept))
                # A module that ends the process while it is loaded leaves its last words there.
                os.write(2, kept.encode("utf-8", "replace"))
            elif self._invocation_id:
                self._send_text(source, text)

    def _send_text(self, source: str, text: str) -> None:
        while text:
            piece, text = text[:_FRAME_CHARACTERS], text[_FRAME_CHARACTERS:]
            if len(piece) > self._left or not self._frames_left:
                self._omitted += len(piece) + len(text)
                self._left = 0
                return
            self._left -= len(piece)
            self._frames_left -= 1
            self._send({"source": source, "text": piece})

    def _send(self, output: dict[str, Any]) -> None:
        self._responses.send(frames.early_frame(frames.encode({"id": self._invocation_id, "output": output})))

    def _open(self, source: str, descriptor: int) -> io.TextIOWrapper:
        buffer = _OutputBuffer(lambda text: self.write(source, text), descriptor)
        return io.TextIOWrapper(buffer, "utf-8", "replace", line_buffering=True)  # type: ignore[arg-type]


class _OutputBuffer(io.BufferedIOBase):
    """The binary layer of a stream."""

    def __init__(self, write: Callable[[str], None], descriptor: int) -> None:
        super().__init__()
        self._write, self._descriptor = write, descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """Return the descriptor of the process, which child processes may inherit."""
        return self._descriptor

    def write(self, data: Any) -> int:
        written = bytes(data)
        self._write(written.decode("utf-8", "replace"))
        return len(written)
