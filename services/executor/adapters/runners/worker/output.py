"""Collects what a tool prints during one call. The frames are untrusted input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.executor.adapters.runners.worker.answer import MalformedAnswerError, split_lines
from services.executor.domain.run import LogSource, RunNotes

# The worker respects these limits; code that writes frames in its place might not.
_MAX_CHARACTERS = 32_768
_MAX_FRAMES = 4001
_MAX_FRAME_CHARACTERS = 600
_MAX_OMITTED = 2**53
_SOURCES = {source.value: source for source in (LogSource.STDOUT, LogSource.STDERR, LogSource.LOG)}


class OutputCollector:
    """The output of one call, in the order it was written."""

    def __init__(self, invocation_id: str, clean: Callable[[str], str] = str) -> None:
        """`clean` removes what must not be in a text."""
        self._invocation_id, self._clean = invocation_id, clean
        self._parts: list[tuple[LogSource, str]] = []
        self._omitted = 0
        self._left, self._frames_left = _MAX_CHARACTERS, _MAX_FRAMES

    def add(self, frame: dict[str, Any]) -> None:
        """Add the output of a frame. Raises MalformedAnswerError, also for a frame of another call."""
        output = frame.get("output")
        self._frames_left -= 1
        if frame.get("id") != self._invocation_id or not isinstance(output, dict) or self._frames_left < 0:
            raise MalformedAnswerError
        omitted = output.get("omitted")
        if omitted is not None:
            if type(omitted) is not int or not 0 <= omitted <= _MAX_OMITTED:
                raise MalformedAnswerError
            self._omitted = omitted
            return
        source, text = _SOURCES.get(str(output.get("source"))), output.get("text")
        if source is None or not isinstance(text, str) or len(text) > min(_MAX_FRAME_CHARACTERS, self._left):
            raise MalformedAnswerError
        self._left -= len(text)
        self._parts.append((source, text))

    def fill(self, notes: RunNotes) -> None:
        """Add the lines to the notes of the run."""
        for source, text in _merge(self._parts):
            notes.lines += split_lines(source, self._clean(text))
        notes.omitted += self._omitted


def _merge(parts: list[tuple[LogSource, str]]) -> list[tuple[LogSource, str]]:
    """Join consecutive parts of one source: a long line arrives in several."""
    merged: list[tuple[LogSource, list[str]]] = []
    for source, text in parts:
        if not merged or merged[-1][0] is not source:
            merged.append((source, []))
        merged[-1][1].append(text)
    return [(source, "".join(texts)) for source, texts in merged]
