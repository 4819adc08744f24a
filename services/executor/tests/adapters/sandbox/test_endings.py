from __future__ import annotations

import pytest

from libs.common.errors import Reason
from services.executor.adapters.sandbox.endings import error_of
from services.executor.adapters.sandbox.port import End, Ending

REASONS = {
    End.EXITED: Reason.EXECUTION_FAILED,
    End.CRASHED: Reason.TOOL_CRASHED,
    End.OUT_OF_MEMORY: Reason.TOOL_OUT_OF_MEMORY,
    End.CPU_LIMIT: Reason.RESOURCE_LIMIT_EXCEEDED,
    End.PROCESS_LIMIT: Reason.RESOURCE_LIMIT_EXCEEDED,
    End.FILE_LIMIT: Reason.RESOURCE_LIMIT_EXCEEDED,
    End.FORBIDDEN_CALL: Reason.TOOL_CRASHED,
    End.KILLED: Reason.TOOL_TIMEOUT,
    End.NEVER_BEGAN: Reason.SANDBOX_UNAVAILABLE,
}


@pytest.mark.parametrize("kind", End)
def test_every_end_has_its_reason(kind: End) -> None:
    assert error_of(Ending(kind, code=11), 2.0).reason is REASONS[kind]


def test_limits_are_named() -> None:
    named = {
        kind: error_of(Ending(kind), 1.0).metadata["limit"]
        for kind in (End.CPU_LIMIT, End.PROCESS_LIMIT, End.FILE_LIMIT)
    }
    assert named == {End.CPU_LIMIT: "cpu", End.PROCESS_LIMIT: "processes", End.FILE_LIMIT: "file_size"}


def test_crashes_are_told_apart() -> None:
    assert error_of(Ending(End.FORBIDDEN_CALL), 1.0).metadata == {"cause": "forbidden_call"}
    assert error_of(Ending(End.CRASHED, code=11), 1.0).metadata == {"cause": "signal_11"}


def test_the_time_that_was_allowed_is_told() -> None:
    assert error_of(Ending(End.KILLED), 1.5).metadata == {"limit_ms": "1500"}


@pytest.mark.parametrize("kind", End)
def test_what_a_process_said_stays_here(kind: End) -> None:
    error = error_of(Ending(kind, complaint="password=hunter2"), 1.0)
    assert "hunter2" not in f"{error} {error.metadata} {error.message}"
