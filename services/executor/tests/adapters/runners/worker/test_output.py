"""Collecting the output of a call from frames, which are untrusted."""

from __future__ import annotations

from typing import Any

import pytest

from services.executor.adapters.runners.worker.answer import MalformedAnswerError
from services.executor.adapters.runners.worker.output import OutputCollector
from services.executor.domain.run import LogLine, LogSource, RunNotes


def frame(text: Any = "x", source: Any = "stdout", invocation_id: str = "i", **output: Any) -> dict[str, Any]:
    return {"id": invocation_id, "output": output or {"source": source, "text": text}}


def test_parts_become_lines_in_order_without_control_characters() -> None:
    collector, notes = OutputCollector("i"), RunNotes()
    for sent in (
        frame("a lo"),
        frame("ng line\nne"),
        frame("xt\n"),
        frame("\x1b[31mred\n", "stderr"),
        frame(omitted=7),
    ):
        collector.add(sent)
    collector.fill(notes)
    assert notes.lines == [
        LogLine(LogSource.STDOUT, "a long line"),
        LogLine(LogSource.STDOUT, "next"),
        LogLine(LogSource.STDERR, "\N{REPLACEMENT CHARACTER}[31mred"),
    ]
    assert notes.omitted == 7


@pytest.mark.parametrize(
    "sent",
    [
        frame(invocation_id="another call"),
        frame(source="failure"),
        frame(text=1),
        frame(text="x" * 601),
        frame(omitted=-1),
        frame(omitted=True),
        {"id": "i", "output": "x"},
    ],
)
def test_a_malformed_frame_is_refused(sent: dict[str, Any]) -> None:
    with pytest.raises(MalformedAnswerError):
        OutputCollector("i").add(sent)


def test_endless_output_is_refused() -> None:
    for text in ("x" * 600, ""):
        collector = OutputCollector("i")
        with pytest.raises(MalformedAnswerError):
            for _ in range(5000):
                collector.add(frame(text))
