from __future__ import annotations

import base64
import signal
from typing import Any

import pytest

from services.executor.adapters.sandbox.exit_report import diagnose
from services.executor.adapters.sandbox.port import End, Plan

PLAN = Plan(("/bin/true",), memory_bytes=100, cpu_seconds=10.0)


def facts(complaint: str = "", **changes: Any) -> dict[str, Any]:
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
        "complaint": base64.b64encode(complaint.encode()).decode(),
        **changes,
    }


_REFUSED = "BlockingIOError: [Errno 11] Resource temporarily unavailable"
# Of another process, which has not come to its last words.
_BEGINNING = 'Traceback (most recent call last):\n  File "<string>", line 2, in <module>\n    os.fork()\n'


@pytest.mark.parametrize(
    ("known", "kind", "code"),
    [
        (facts(), End.EXITED, 0),
        (facts(code=7), End.EXITED, 7),
        (facts(code=128), End.EXITED, 128),
        (facts(code=128 + signal.SIGSEGV), End.CRASHED, signal.SIGSEGV),
        (facts(code=128 + signal.SIGKILL), End.CRASHED, signal.SIGKILL),
        (facts(code=128 + signal.SIGKILL, oom_kills=1), End.OUT_OF_MEMORY, 0),
        (facts(code=None, outer=9, oom_kills=3), End.OUT_OF_MEMORY, 0),
        (facts(code=0, oom_kills=1), End.EXITED, 0),
        (facts(code=128 + signal.SIGXCPU), End.CPU_LIMIT, 0),
        (facts(code=128 + signal.SIGKILL, cpu_seconds=10.5), End.CPU_LIMIT, 0),
        (facts(over="cpu", killed=True, code=None), End.CPU_LIMIT, 0),
        (facts(over="processes", code=None), End.PROCESS_LIMIT, 0),
        (facts(code=1, refused_processes=1), End.PROCESS_LIMIT, 0),
        (facts(code=0, refused_processes=1), End.EXITED, 0),
        (facts(code=128 + signal.SIGXFSZ), End.FILE_LIMIT, 0),
        (facts(code=128 + signal.SIGSYS), End.FORBIDDEN_CALL, 0),
        (facts(code=None, killed=True, outer=9), End.KILLED, 0),
        (facts(code=128 + signal.SIGKILL, killed=True), End.KILLED, 0),
        (facts(code=0, killed=True), End.EXITED, 0),
        (facts(code=None, outer=1 << 8), End.NEVER_BEGAN, 0),
        (facts(code=None, outer=9), End.CRASHED, 9),
        ({"failed": "no room"}, End.NEVER_BEGAN, 0),
        ({"lost": True}, End.CRASHED, 9),
        (facts("bwrap: execvp /nope: gone\n", code=None, outer=1 << 8), End.EXITED, 127),
        (facts("Traceback\nOSError: [Errno 28] No space left on device\n", code=1), End.FILE_LIMIT, 0),
        (facts("No space left on device\nsomething else\n", code=1), End.EXITED, 1),
        (facts(f"{_REFUSED}\n{_BEGINNING}", code=1), End.PROCESS_LIMIT, 0),
        (facts(f"{_REFUSED}\n{_BEGINNING}ValueError: no\n", code=1), End.EXITED, 1),
        (facts(_BEGINNING, code=1), End.EXITED, 1),
        (facts("  indented: No space left on device \n\n", code=1), End.FILE_LIMIT, 0),
        (facts("MemoryError\n", code=1), End.OUT_OF_MEMORY, 0),
        (facts("MemoryError\n", code=0), End.EXITED, 0),
        (facts(code=1, grouped=[], peak_memory=99), End.OUT_OF_MEMORY, 0),
        (facts(code=1, peak_memory=99), End.EXITED, 1),
    ],
)
def test_an_end_is_what_the_facts_say(known: dict[str, Any], kind: End, code: int) -> None:
    ending = diagnose(PLAN, known)
    assert (ending.kind, ending.code) == (kind, code)


def test_what_was_used_is_told() -> None:
    ending = diagnose(PLAN, facts("gone wrong", code=3))
    assert (ending.complaint, ending.cpu_seconds, ending.peak_memory_bytes) == ("gone wrong", 0.5, 50)


def test_words_that_are_no_text_are_told_as_far_as_they_are() -> None:
    known = facts() | {"complaint": base64.b64encode(b"\xff\xfeok").decode()}
    assert diagnose(PLAN, known).complaint.endswith("ok")
