from __future__ import annotations

import os
import subprocess
import sys

from localmesh.memory import all_children, family, proportional, resident


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


def test_what_cannot_be_seen_falls_back_to_what_can() -> None:
    assert proportional([os.getpid(), 2**22 + 1]).kind == "rss"
