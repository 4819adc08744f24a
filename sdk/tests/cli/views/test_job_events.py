"""Events of an invocation, as lines and as a bar."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh_sdk.cli.views import job_events, output
from toolmesh_sdk.cli.views.job_events import EventView, describe

STEP = ipb.InvocationEvent(progress=ipb.Progress(current_step=1, total_steps=4, message="first\x1b[2J"))
LINE = ipb.InvocationEvent(log_message=ipb.LogMessage(severity=ipb.LOG_SEVERITY_INFO, text="a line"))
MOVED = ipb.InvocationEvent(transition=ipb.StateTransition(state=ipb.INVOCATION_STATE_RUNNING))


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_a_bar_and_others_get_lines(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=100, color_system=None)
    monkeypatch.setattr(output, "err", lambda: console)
    view = EventView()
    with view.opened():
        for event in (MOVED, STEP, LINE, ipb.InvocationEvent(ended=ipb.Invocation())):
            view.show(event)
    shown = written.getvalue()
    assert "a line" in shown
    assert "step 1 of 4  first" in shown
    # What a tool says does not drive the terminal.
    assert "first\x1b" not in shown
    assert ("25%" in shown) is terminal


def test_a_long_part_is_shortened_and_progress_without_facts_has_a_word() -> None:
    part = ipb.InvocationEvent(partial_result=ipb.PartialResult(content=b'"' + b"x" * 1000 + b'"'))
    assert len(describe(part)) < 250
    assert describe(ipb.InvocationEvent(partial_result=ipb.PartialResult(content=b"{"))) == "part: {"
    assert job_events.describe_progress(ipb.Progress()) == "progress"
    assert job_events.describe_progress(ipb.Progress(percent=12.4)) == "12 %"
