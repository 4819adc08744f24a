"""From the facts of an end to what it means."""

from __future__ import annotations

import base64
import os
import re
import signal
from typing import Any

from services.executor.adapters.sandbox.port import End, Ending, Plan

_OVER = {"cpu": End.CPU_LIMIT, "processes": End.PROCESS_LIMIT, "memory": End.OUT_OF_MEMORY}
_SIGNALS = {
    signal.SIGSYS: End.FORBIDDEN_CALL,
    signal.SIGXCPU: End.CPU_LIMIT,
    signal.SIGXFSZ: End.FILE_LIMIT,
}
_SIGNALED = 128
_NEARLY = 0.8
_NO_PROGRAM, _NOT_FOUND = "bwrap: execvp ", 127
# A program that is refused memory, room or a process by the kernel may only say so and exit. Nothing but its own last words tells then.
_LAST_WORDS = (
    ("MemoryError", End.OUT_OF_MEMORY),
    ("Cannot allocate memory", End.OUT_OF_MEMORY),
    ("File too large", End.FILE_LIMIT),
    ("No space left on device", End.FILE_LIMIT),
    ("Resource temporarily unavailable", End.PROCESS_LIMIT),
    ("can't start new thread", End.PROCESS_LIMIT),
)
_PART_OF_A_TRACEBACK = re.compile(r'  File "|    |Traceback \(most recent call last\):$')


def diagnose(plan: Plan, facts: dict[str, Any]) -> Ending:
    """Say how a confined process ended. What the kernel counted is believed before what the process said."""
    complaint = base64.b64decode(facts.get("complaint", "")).decode("utf-8", "replace")
    kind, code = _kind(plan, facts, complaint)
    return Ending(
        kind=kind,
        code=code,
        complaint=facts.get("failed") or complaint,
        cpu_seconds=facts.get("cpu_seconds", 0.0),
        peak_memory_bytes=facts.get("peak_memory", 0),
    )


def _kind(plan: Plan, facts: dict[str, Any], complaint: str) -> tuple[End, int]:
    if facts.get("failed"):
        return End.NEVER_BEGAN, 0
    if facts.get("lost"):
        return End.CRASHED, signal.SIGKILL
    if facts["over"]:
        return _OVER[facts["over"]], 0
    if facts["code"] is not None:
        return _of_code(plan, facts, complaint)
    if facts["killed"]:
        return End.KILLED, 0
    if facts["oom_kills"]:
        return End.OUT_OF_MEMORY, 0
    # Bubblewrap says how the tool ended if there ever was one.
    if os.WIFSIGNALED(facts["outer"]):
        return End.CRASHED, os.WTERMSIG(facts["outer"])
    # Everything was ready but the program: nobody else has written anything yet.
    if _NO_PROGRAM in complaint:
        return End.EXITED, _NOT_FOUND
    return End.NEVER_BEGAN, 0


def _of_code(plan: Plan, facts: dict[str, Any], complaint: str) -> tuple[End, int]:
    code: int = facts["code"]
    if code == 0:
        return End.EXITED, 0
    if facts["oom_kills"]:
        return End.OUT_OF_MEMORY, 0
    if code > _SIGNALED:
        return _of_signal(plan, facts, code - _SIGNALED)
    if facts["refused_processes"]:
        return End.PROCESS_LIMIT, 0
    if "memory" not in facts["grouped"] and facts["peak_memory"] >= plan.memory_bytes * _NEARLY:
        return End.OUT_OF_MEMORY, 0
    last = _last_line(complaint)
    for words, kind in _LAST_WORDS:
        if words in last:
            return kind, 0
    return End.EXITED, code


def _last_line(complaint: str) -> str:
    """Return the last line that says why. Processes that end together write over each other: one's last words may stand before the beginnings of
    another's traceback."""
    lines = complaint.splitlines()
    return next((line for line in reversed(lines) if line.strip() and not _PART_OF_A_TRACEBACK.match(line)), "")


def _of_signal(plan: Plan, facts: dict[str, Any], number: int) -> tuple[End, int]:
    """What a signal means. A status above 128 is read as every shell reads it."""
    if kind := _SIGNALS.get(number):  # type: ignore[call-overload]
        return kind, 0
    if number == signal.SIGKILL and facts["killed"]:
        return End.KILLED, 0
    if number == signal.SIGKILL and facts["cpu_seconds"] >= plan.cpu_seconds:
        return End.CPU_LIMIT, 0
    if facts["refused_processes"]:
        return End.PROCESS_LIMIT, 0
    return End.CRASHED, number
