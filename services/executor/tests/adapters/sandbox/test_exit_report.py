from __future__ import annotations

import base64
import signal
from typing import Any

import pytest

from libs.common.errors import Reason
from services.executor.adapters.sandbox.exit_report import diagnose, error_for_exit
from services.executor.adapters.sandbox.port import ExitKind, ExitReport, Plan

PLAN = Plan(("/bin/true",), memory_bytes=100, cpu_seconds=10.0)


def facts(stderr_tail: str = "", **changes: Any) -> dict[str, Any]:
    return {
        "code": 0,
        "outer": 0,
        "failed": "",
        "over": "",
        "killed": False,
        "grouped": ["cpu", "memory", "pids"],
        "oom_kills": 0,
        "refused_processes": 0,
        "cpu_seconds": 0.5,
        "peak_memory": 50,
        "stderr_tail": base64.b64encode(stderr_tail.encode()).decode(),
        **changes,
    }


_REFUSED = "BlockingIOError: [Errno 11] Resource temporarily unavailable"
# The start of another process's traceback, without its last line.
_BEGINNING = 'Traceback (most recent call last):\n  File "<string>", line 2, in <module>\n    os.fork()\n'


@pytest.mark.parametrize(
    ("known", "kind", "code"),
    [
        (facts(), ExitKind.EXITED, 0),
        (facts(code=7), ExitKind.EXITED, 7),
        (facts(code=128), ExitKind.EXITED, 128),
        (facts(code=128 + signal.SIGSEGV), ExitKind.CRASHED, signal.SIGSEGV),
        (facts(code=128 + signal.SIGKILL), ExitKind.CRASHED, signal.SIGKILL),
        (facts(code=128 + signal.SIGKILL, oom_kills=1), ExitKind.OUT_OF_MEMORY, 0),
        (facts(code=None, outer=9, oom_kills=3), ExitKind.OUT_OF_MEMORY, 0),
        (facts(code=0, oom_kills=1), ExitKind.EXITED, 0),
        (facts(code=128 + signal.SIGXCPU), ExitKind.CPU_LIMIT, 0),
        (facts(code=128 + signal.SIGKILL, cpu_seconds=10.5), ExitKind.CPU_LIMIT, 0),
        (facts(over="cpu", killed=True, code=None), ExitKind.CPU_LIMIT, 0),
        (facts(over="processes", code=None), ExitKind.PROCESS_LIMIT, 0),
        (facts(code=1, refused_processes=1), ExitKind.PROCESS_LIMIT, 0),
        (facts(code=0, refused_processes=1), ExitKind.EXITED, 0),
        (facts(code=128 + signal.SIGXFSZ), ExitKind.FILE_LIMIT, 0),
        (facts(code=128 + signal.SIGSYS), ExitKind.FORBIDDEN_CALL, 0),
        (facts(code=None, killed=True, outer=9), ExitKind.KILLED, 0),
        (facts(code=128 + signal.SIGKILL, killed=True), ExitKind.KILLED, 0),
        (facts(code=0, killed=True), ExitKind.EXITED, 0),
        (facts(code=None, outer=1 << 8), ExitKind.NOT_STARTED, 0),
        (facts(code=None, outer=9), ExitKind.CRASHED, 9),
        ({"failed": "no room"}, ExitKind.NOT_STARTED, 0),
        ({"lost": True}, ExitKind.CRASHED, 9),
        (facts("bwrap: execvp /nope: gone\n", code=None, outer=1 << 8), ExitKind.EXITED, 127),
        (facts("Traceback\nOSError: [Errno 28] No space left on device\n", code=1), ExitKind.FILE_LIMIT, 0),
        (facts("No space left on device\nsomething else\n", code=1), ExitKind.EXITED, 1),
        (facts(f"{_REFUSED}\n{_BEGINNING}", code=1), ExitKind.PROCESS_LIMIT, 0),
        (facts(f"{_REFUSED}\n{_BEGINNING}ValueError: no\n", code=1), ExitKind.EXITED, 1),
        (facts(_BEGINNING, code=1), ExitKind.EXITED, 1),
        (facts("  indented: No space left on device \n\n", code=1), ExitKind.FILE_LIMIT, 0),
        (facts("MemoryError\n", code=1), ExitKind.OUT_OF_MEMORY, 0),
        (facts("MemoryError\n", code=0), ExitKind.EXITED, 0),
        (facts(code=1, grouped=[], peak_memory=99), ExitKind.OUT_OF_MEMORY, 0),
        (facts(code=1, peak_memory=99), ExitKind.EXITED, 1),
    ],
)
def test_exit_facts_are_classified(known: dict[str, Any], kind: ExitKind, code: int) -> None:
    report = diagnose(PLAN, known)
    assert (report.kind, report.code) == (kind, code)


def test_exit_report_contains_usage_and_stderr() -> None:
    report = diagnose(PLAN, facts("gone wrong", code=3))
    assert (report.stderr_tail, report.cpu_seconds, report.peak_memory_bytes) == ("gone wrong", 0.5, 50)


def test_stderr_that_is_not_utf8_is_decoded_with_replacements() -> None:
    known = facts() | {"stderr_tail": base64.b64encode(b"\xff\xfeok").decode()}
    assert diagnose(PLAN, known).stderr_tail.endswith("ok")


REASONS = {
    ExitKind.EXITED: Reason.EXECUTION_FAILED,
    ExitKind.CRASHED: Reason.TOOL_CRASHED,
    ExitKind.OUT_OF_MEMORY: Reason.TOOL_OUT_OF_MEMORY,
    ExitKind.CPU_LIMIT: Reason.RESOURCE_LIMIT_EXCEEDED,
    ExitKind.PROCESS_LIMIT: Reason.RESOURCE_LIMIT_EXCEEDED,
    ExitKind.FILE_LIMIT: Reason.RESOURCE_LIMIT_EXCEEDED,
    ExitKind.FORBIDDEN_CALL: Reason.TOOL_CRASHED,
    ExitKind.KILLED: Reason.TOOL_TIMEOUT,
    ExitKind.NOT_STARTED: Reason.SANDBOX_UNAVAILABLE,
}


@pytest.mark.parametrize("kind", ExitKind)
def test_every_exit_kind_has_an_error_reason(kind: ExitKind) -> None:
    assert error_for_exit(ExitReport(kind, code=11), 2.0).reason is REASONS[kind]


def test_limit_errors_name_the_limit() -> None:
    named = {
        kind: error_for_exit(ExitReport(kind), 1.0).metadata["limit"]
        for kind in (ExitKind.CPU_LIMIT, ExitKind.PROCESS_LIMIT, ExitKind.FILE_LIMIT)
    }
    assert named == {ExitKind.CPU_LIMIT: "cpu", ExitKind.PROCESS_LIMIT: "processes", ExitKind.FILE_LIMIT: "file_size"}


def test_crash_errors_name_their_cause() -> None:
    assert error_for_exit(ExitReport(ExitKind.FORBIDDEN_CALL), 1.0).metadata == {"cause": "forbidden_call"}
    assert error_for_exit(ExitReport(ExitKind.CRASHED, code=11), 1.0).metadata == {"cause": "signal_11"}


def test_timeout_error_contains_the_time_limit() -> None:
    assert error_for_exit(ExitReport(ExitKind.KILLED), 1.5).metadata == {"limit_ms": "1500"}


@pytest.mark.parametrize("kind", ExitKind)
def test_errors_never_contain_process_output(kind: ExitKind) -> None:
    error = error_for_exit(ExitReport(kind, stderr_tail="password=hunter2"), 1.0)
    assert "hunter2" not in f"{error} {error.metadata} {error.message}"
