from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localmesh.process.memory import all_children, family, proportional, resident


def test_a_family_is_a_process_and_its_descendants() -> None:
    program = "import subprocess; p = subprocess.Popen(['/bin/sleep', '60']); print(p.pid, flush=True); p.wait()"
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    grandchild = int(parent.stdout.readline())
    assert {parent.pid, grandchild} <= set(family(os.getpid(), all_children()))
    assert family(parent.pid, all_children()) == [parent.pid, grandchild]
    for pid in (grandchild, parent.pid):
        os.kill(pid, 9)
    parent.wait()


def test_shared_memory_counts_once_in_proportion() -> None:
    pid = os.getpid()
    assert 0 < proportional([pid]).bytes <= resident([pid]).bytes
    assert (proportional([pid]).kind, resident([pid]).kind) == ("pss", "rss")


def test_a_process_that_has_just_ended_holds_nothing() -> None:
    """Backends of PostgreSQL come and go while they are being counted."""
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    assert proportional([os.getpid(), ended.pid]).kind == "pss"
    assert proportional([ended.pid]).bytes == 0


def test_what_cannot_be_seen_falls_back_to_what_can(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path) -> str:
        if path.name == "smaps_rollup":
            raise PermissionError(path)
        return path.read_bytes().decode()

    monkeypatch.setattr(Path, "read_text", closed)
    assert proportional([os.getpid()]).kind == "rss"
