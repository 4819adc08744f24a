"""The supervisor starts what ends again, and reaps children that it did not start. It runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, subprocess, sys
from pathlib import Path
from deploy.cluster.node.components import Component
from deploy.cluster.node.supervisor import Supervisor

folder = Path(sys.argv[1])
supervisor = Supervisor(folder, restart_seconds=0)
supervisor.start([Component("short", ["sh", "-c", "echo started; exit 3"])])
while (folder / "short.log").read_text().count("started\\n") < 3:
    supervisor.reap()
if os.fork() == 0:
    os._exit(0)
print("reaped", supervisor.reap())
"""


def test_a_component_that_ends_is_started_again_and_orphans_are_reaped(tmp_path: Path, repository: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("reaped True\n", 0), done.stderr
    log = (tmp_path / "short.log").read_text()
    assert (log.count("started\n") >= 3, "status 3" in log) == (True, True)
