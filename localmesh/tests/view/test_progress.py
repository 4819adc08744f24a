from __future__ import annotations

import io
import os

import pytest

from localmesh.view.progress import (
    Event,
    describe_event,
    event_from_line,
    report_to_file,
    report_to_pipe,
    report_to_terminal,
    without_raising,
)

EVENTS = [
    Event("ready", "postgres", seconds=0.21),
    Event("stopped", "executor", " (killed)", 7.0),
    Event("died", "executor", "exit 1", 0.4),
    Event("back", "executor", "SIGKILL", 1.3, 1),
    Event("failed", "authz", "exit 1", lines=("first", "second")),
    Event("up", text="ready", document={"token": "t"}),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_an_event_survives_the_pipe(event: Event) -> None:
    receiving, sending = os.pipe()
    report_to_pipe(sending)(event)
    os.close(sending)
    with os.fdopen(receiving, "rb") as file:
        assert event_from_line(file.readline()) == event


def test_a_reader_that_left_is_no_error() -> None:
    receiving, sending = os.pipe()
    os.close(receiving)
    without_raising(report_to_pipe(sending))(EVENTS[0])
    os.close(sending)


def test_what_is_no_terminal_gets_plain_lines() -> None:
    stream, plain = io.StringIO(), io.StringIO()
    report_to_terminal(stream)(EVENTS[3])
    report_to_file(plain)(EVENTS[3])
    assert stream.getvalue() == plain.getvalue() == "executor died (SIGKILL), back after 1.3 s (restart 1)\n"


def test_a_failure_shows_the_log_below_it() -> None:
    assert describe_event(EVENTS[4]).splitlines()[1:] == ["  first", "  second"]
