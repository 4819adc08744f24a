"""Turns the raw facts of a process end into an ExitReport, and an ExitReport into the error of the call."""

from __future__ import annotations

import base64
import os
import re
import signal
from typing import Any

from libs.common.errors import MeshError
from services.executor.adapters.sandbox.port import ExitKind, ExitReport, Plan
from services.executor.domain import errors, run_errors

_EXCEEDED = {"cpu": ExitKind.CPU_LIMIT, "processes": ExitKind.PROCESS_LIMIT, "memory": ExitKind.OUT_OF_MEMORY}
_SIGNALS = {
    signal.SIGSYS: ExitKind.FORBIDDEN_CALL,
    signal.SIGXCPU: ExitKind.CPU_LIMIT,
    signal.SIGXFSZ: ExitKind.FILE_LIMIT,
}
_LIMIT_NAMES = {ExitKind.CPU_LIMIT: "cpu", ExitKind.PROCESS_LIMIT: "processes", ExitKind.FILE_LIMIT: "file_size"}
_SIGNAL_BASE = 128
_NEAR_LIMIT = 0.8
_EXEC_FAILED, _NOT_FOUND = "bwrap: execvp ", 127
# A program that gets ENOMEM, ENOSPC or EAGAIN may just print the error and exit: then only stderr shows the cause.
_ERROR_TEXTS = (
    ("MemoryError", ExitKind.OUT_OF_MEMORY),
    ("Cannot allocate memory", ExitKind.OUT_OF_MEMORY),
    ("File too large", ExitKind.FILE_LIMIT),
    ("No space left on device", ExitKind.FILE_LIMIT),
    ("Resource temporarily unavailable", ExitKind.PROCESS_LIMIT),
    ("can't start new thread", ExitKind.PROCESS_LIMIT),
)
_TRACEBACK_LINE = re.compile(r'  File "|    |Traceback \(most recent call last\):$')


def diagnose(plan: Plan, facts: dict[str, Any]) -> ExitReport:
    """Classify the end of a process. Kernel counters take precedence over what the process wrote."""
    stderr_tail = base64.b64decode(facts.get("stderr_tail", "")).decode("utf-8", "replace")
    kind, code = _classify(plan, facts, stderr_tail)
    return ExitReport(
        kind=kind,
        code=code,
        stderr_tail=facts.get("failed") or stderr_tail,
        cpu_seconds=facts.get("cpu_seconds", 0.0),
        peak_memory_bytes=facts.get("peak_memory", 0),
    )


def _classify(plan: Plan, facts: dict[str, Any], stderr_tail: str) -> tuple[ExitKind, int]:
    if facts.get("failed"):
        return ExitKind.NOT_STARTED, 0
    if facts.get("lost"):
        return ExitKind.CRASHED, signal.SIGKILL
    if facts["over"]:
        return _EXCEEDED[facts["over"]], 0
    if facts["code"] is not None:
        return _classify_exit_code(plan, facts, stderr_tail)
    if facts["killed"]:
        return ExitKind.KILLED, 0
    if facts["oom_kills"]:
        return ExitKind.OUT_OF_MEMORY, 0
    # Bubblewrap reports an exit code if the tool was ever started.
    if os.WIFSIGNALED(facts["outer"]):
        return ExitKind.CRASHED, os.WTERMSIG(facts["outer"])
    # Only execvp failed: at this point nothing but bubblewrap has written to stderr.
    if _EXEC_FAILED in stderr_tail:
        return ExitKind.EXITED, _NOT_FOUND
    return ExitKind.NOT_STARTED, 0


def _classify_exit_code(plan: Plan, facts: dict[str, Any], stderr_tail: str) -> tuple[ExitKind, int]:
    code: int = facts["code"]
    if code == 0:
        return ExitKind.EXITED, 0
    if facts["oom_kills"]:
        return ExitKind.OUT_OF_MEMORY, 0
    if code > _SIGNAL_BASE:
        return _classify_signal(plan, facts, code - _SIGNAL_BASE)
    if facts["refused_processes"]:
        return ExitKind.PROCESS_LIMIT, 0
    if "memory" not in facts["grouped"] and facts["peak_memory"] >= plan.memory_bytes * _NEAR_LIMIT:
        return ExitKind.OUT_OF_MEMORY, 0
    last = _last_message(stderr_tail)
    for text, kind in _ERROR_TEXTS:
        if text in last:
            return kind, 0
    return ExitKind.EXITED, code


def _last_message(stderr_tail: str) -> str:
    """Return the last line that is not part of a traceback. Processes that end at the same time interleave their
    output: one's message may stand before the start of another's traceback."""
    lines = stderr_tail.splitlines()
    return next((line for line in reversed(lines) if line.strip() and not _TRACEBACK_LINE.match(line)), "")


def _classify_signal(plan: Plan, facts: dict[str, Any], number: int) -> tuple[ExitKind, int]:
    """Classify a signal; exit codes above 128 are read as shells read them."""
    if kind := _SIGNALS.get(number):  # type: ignore[call-overload]
        return kind, 0
    if number == signal.SIGKILL and facts["killed"]:
        return ExitKind.KILLED, 0
    if number == signal.SIGKILL and facts["cpu_seconds"] >= plan.cpu_seconds:
        return ExitKind.CPU_LIMIT, 0
    if facts["refused_processes"]:
        return ExitKind.PROCESS_LIMIT, 0
    return ExitKind.CRASHED, number


def error_for_exit(report: ExitReport, seconds: float) -> MeshError:
    """Return the error for a report; `seconds` is the time limit of the run. The error never contains process output.

    A forbidden system call is TOOL_CRASHED with `cause` = forbidden_call, because raising a limit would not help.
    """
    if report.kind in _LIMIT_NAMES:
        return run_errors.limit_reached(_LIMIT_NAMES[report.kind])
    match report.kind:
        case ExitKind.EXITED:
            return run_errors.exited(report.code)
        case ExitKind.OUT_OF_MEMORY:
            return run_errors.out_of_memory()
        case ExitKind.KILLED:
            return errors.tool_timed_out(seconds)
        case ExitKind.NOT_STARTED:
            return run_errors.sandbox_failed("the sandbox could not be created")
        case ExitKind.FORBIDDEN_CALL:
            return run_errors.crashed("forbidden_call")
        case _:
            return run_errors.crashed(f"signal_{report.code}")
