"""The worker code, tested outside a sandbox."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services.executor.worker.toolmesh_tool.call import MAX_NOTES, Call
from services.executor.worker.toolmesh_tool.egress import UnreachableError, connect
from services.executor.worker.toolmesh_tool.frames import encode
from services.executor.worker.toolmesh_tool.worker import NOT_ALONE

CODE = Path(__file__).resolve().parents[3] / "worker"


def a_call() -> Call:
    return Call({"id": "i", "key": "k", "preview": False, "seconds": 5.0})


def test_a_worker_refuses_to_run_beside_other_processes() -> None:
    """Between calls it kills every other process it sees, so it must not run outside a sandbox."""
    boot = f"import sys; sys.path.append({str(CODE)!r}); from toolmesh_tool.worker import main; main()"
    done = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", boot], input=b"", capture_output=True, check=False)
    assert done.returncode == NOT_ALONE


def test_the_tool_package_needs_only_the_standard_library() -> None:
    boot = f"import sys; sys.path.append({str(CODE)!r}); import toolmesh_tool, toolmesh_tool.worker"
    subprocess.run([sys.executable, "-I", "-S", "-B", "-c", boot], check=True)


def test_notes_of_a_call_are_limited() -> None:
    call = a_call()
    for _ in range(MAX_NOTES):
        call.report_effect("a", "create")
    with pytest.raises(ValueError):
        call.report_effect("a", "create")
    assert len(call.notes["effects"]) == MAX_NOTES


def test_invalid_notes_are_refused() -> None:
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


def test_remaining_time_is_never_negative() -> None:
    assert 0 < a_call().remaining() <= 5
    assert Call({"id": "i", "key": "", "preview": False, "seconds": -1.0}).remaining() == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1}, object(), "\ud800"])
def test_values_without_a_json_form_are_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        encode(value)


@pytest.mark.parametrize(("host", "port"), [("a\r\nb", 80), ("a b", 80), ("a", 0), ("a", 70000), ("ü", 80), ("a", 80)])
def test_connect_fails_without_an_egress_socket(host: str, port: int) -> None:
    with pytest.raises(UnreachableError):
        connect(host, port)
