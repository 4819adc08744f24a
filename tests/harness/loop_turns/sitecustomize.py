"""Measures the event loop of every service that a mesh starts with this folder in PYTHONPATH.

A turn is the processor time of the loop's thread between two passes through the selector: it does not grow when other
processes keep the machine busy. A hold is how long another thread of the process had to wait for the interpreter's
lock: work in a thread that does not release it stops the loop as well. Lines of JSON go to `$LOOP_TURNS/<service>.log`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import selectors
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

# Shorter turns are not written.
SHORTEST = 0.004
_TICK, _SAMPLED = 0.002, 0.015
_SERVICES = "services."


class TurnSelector(selectors.DefaultSelector):
    """A selector that measures the turns between its calls."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def select(self, timeout: float | None = None) -> Any:
        self._turns.end()
        try:
            return super().select(timeout)
        finally:
            self._turns.begin()


class Turns:
    """The turns of one loop."""

    def __init__(self, path: str) -> None:
        self._output = Path(path).open("a", buffering=1)  # noqa: SIM115
        self._thread = threading.get_ident()
        self._began = self._began_wall = time.thread_time()
        self._stack: list[str] = []
        self._collection = 0.0

    def begin(self) -> None:
        self._stack = []
        self._began, self._began_wall = time.thread_time(), time.monotonic()

    def end(self) -> None:
        taken = time.thread_time() - self._began
        if taken >= SHORTEST:
            self.write("turn", taken, self._stack)

    def write(self, kind: str, seconds: float, stack: list[str]) -> None:
        line = {"kind": kind, "at": time.monotonic(), "seconds": round(seconds, 4), "stack": stack}
        self._output.write(json.dumps(line) + "\n")

    def collecting(self, phase: str, facts: dict[str, int]) -> None:
        """Measure one run of the garbage collector, which holds the interpreter's lock; gc calls this."""
        if phase == "start":
            self._collection = time.thread_time()
        elif (taken := time.thread_time() - self._collection) >= SHORTEST:
            self.write("collection", taken, [f"generation {facts['generation']}", threading.current_thread().name])

    def watch(self) -> None:
        """Look at the process every few milliseconds: where a long turn is, and how long the lock was held."""
        while True:
            wall, waited, used = time.monotonic(), _run_queue_seconds(), time.process_time()
            time.sleep(_TICK)
            late = time.monotonic() - wall - _TICK - (_run_queue_seconds() - waited)
            # A holder that other processes keep from running is not the product's fault, and uses no processor.
            held = min(late, time.process_time() - used)
            frames = sys._current_frames()
            if held >= SHORTEST:
                own = threading.get_ident()
                busy = [_stack(frame) for thread, frame in frames.items() if thread not in (self._thread, own)]
                self.write("hold", held, [line for stack in busy for line in stack[-4:]])
            if not self._stack and time.monotonic() - self._began_wall > _SAMPLED:
                self._stack = _stack(frames[self._thread])


def _run_queue_seconds() -> float:
    """Return how long this thread waited for a processor so far."""
    return int(Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()[1]) / 1e9


def _stack(frame: Any) -> list[str]:
    return [f"{line.filename.rpartition('/toolmesh/')[2]}:{line.lineno} {line.name}"
            for line in traceback.extract_stack(frame)][-12:]  # fmt: skip


def _measure(service: str, folder: str) -> None:
    import uvloop

    def new_event_loop() -> asyncio.AbstractEventLoop:
        turns = Turns(f"{folder}/{service}.log")
        threading.Thread(target=turns.watch, name="loop-turns", daemon=True).start()
        gc.callbacks.append(turns.collecting)
        return asyncio.SelectorEventLoop(TurnSelector(turns))

    uvloop.new_event_loop = new_event_loop  # type: ignore[assignment]


for _module in sys.orig_argv[-1:]:
    if _module.startswith(_SERVICES) and os.environ.get("LOOP_TURNS"):
        _measure(_module.removeprefix(_SERVICES), os.environ["LOOP_TURNS"])
