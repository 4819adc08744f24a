"""Shows the steps of a command, each with its seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class Progress:
    """Writes a line for each step. On a terminal the seconds of the running step count up."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._began = time.monotonic()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Shows a step for as long as its block runs."""
        began, ended = time.monotonic(), threading.Event()
        self._write(f"  {title} ")
        ticker = threading.Thread(target=self._tick, args=(title, began, ended), daemon=True)
        ticker.start()
        outcome = "failed after "
        try:
            yield
            outcome = ""
        finally:
            ended.set()
            ticker.join()
            start = "\r  " + title + " " if self._stream.isatty() else ""
            self._write(f"{start}{outcome}{time.monotonic() - began:.1f} s\n")

    def say(self, text: str) -> None:
        """Writes a line that is no step."""
        self._write(f"{text}\n")

    def seconds(self) -> float:
        """Returns how long the command has run."""
        return time.monotonic() - self._began

    def _tick(self, title: str, began: float, ended: threading.Event) -> None:
        while self._stream.isatty() and not ended.wait(1):
            self._write(f"\r  {title} {time.monotonic() - began:.0f} s")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
