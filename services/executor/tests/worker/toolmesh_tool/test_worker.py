"""The code inside the sandbox, where it can be looked at from outside of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services.executor.worker.toolmesh_tool.call import LOG_CHARACTERS, MOST_NOTES, Call
from services.executor.worker.toolmesh_tool.egress import UnreachableError, connect
from services.executor.worker.toolmesh_tool.frames import encoded
from services.executor.worker.toolmesh_tool.worker import NOT_ALONE

CODE = Path(__file__).resolve().parents[3] / "worker"


def a_call() -> Call:
    return Call({"id": "i", "key": "k", "preview": False, "seconds": 5.0})


def test_a_worker_refuses_to_work_where_others_run() -> None:
    """Between calls it ends every other process that it sees. It must never see ours."""
    boot = f"import sys; sys.path.append({str(CODE)!r}); from toolmesh_tool.worker import main; main()"
    done = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", boot], input=b"", capture_output=True, check=False)
    assert done.returncode == NOT_ALONE


def test_it_stands_on_the_standard_library_alone() -> None:
    boot = f"import sys; sys.path.append({str(CODE)!r}); import toolmesh_tool, toolmesh_tool.worker"
    subprocess.run([sys.executable, "-I", "-S", "-B", "-c", boot], check=True)


def test_what_a_call_says_is_bounded() -> None:
    call = a_call()
    for _ in range(10):
        call.log("x" * 1000)
    assert sum(len(line) for line in call.notes["log"]) == LOG_CHARACTERS
    for _ in range(MOST_NOTES):
        call.report_effect("a", "create")
    with pytest.raises(ValueError):
        call.report_effect("a", "create")
    assert len(call.notes["effects"]) == MOST_NOTES


def test_what_a_call_says_must_make_sense() -> None:
    call = a_call()
    with pytest.raises(ValueError):
        call.report_effect("a", "explode")
    with pytest.raises(ValueError):
        call.cost("tokens", -1)
    with pytest.raises(ValueError):
        call.report_effect("", "create")
    with pytest.raises(ValueError):
        call.cost("tokens", 2**60)
    with pytest.raises(TypeError):
        call.undo({"what": object()})
    with pytest.raises(ValueError):
        call.undo({"what": "x" * 100_000})
    assert call.notes == a_call().notes


def test_time_runs_out_and_never_below_nothing() -> None:
    assert 0 < a_call().remaining() <= 5
    assert Call({"id": "i", "key": "", "preview": False, "seconds": -1.0}).remaining() == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1}, object(), "\ud800"])
def test_only_what_json_can_say_is_encoded(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        encoded(value)


@pytest.mark.parametrize(("host", "port"), [("a\r\nb", 80), ("a b", 80), ("a", 0), ("a", 70000), ("ü", 80), ("a", 80)])
def test_without_a_way_out_nothing_is_reached(host: str, port: int) -> None:
    with pytest.raises(UnreachableError):
        connect(host, port)
