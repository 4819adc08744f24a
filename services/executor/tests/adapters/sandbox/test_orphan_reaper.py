"""Orphans of sandboxes are reaped; children that this process waits for are not."""

from __future__ import annotations

import subprocess
import sys

ADOPT = """
import asyncio, os, subprocess, sys
from libs.common.telemetry.log import Log
from services.executor.adapters.sandbox.orphan_reaper import OrphanReaper

def orphan():
    '''Start a process whose parent ends before it; return its PID when it has ended.'''
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        own = os.getpid()
        if pid := os.fork():
            os.write(writing, str(pid).encode())
            os._exit(0)
        os.close(reading)
        # Ends when it has been inherited.
        while os.getppid() == own:
            continue
        os._exit(7)
    os.waitpid(parent, 0)
    return int(os.read(reading, 32))

async def main():
    reaper = OrphanReaper(Log("executor"), interval=3600)
    await reaper.start()
    lost = orphan()
    own = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    for pid in (lost, own.pid):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert reaper.reap() == []
    assert own.wait() == 3
    assert reaper.reap() == [lost]
    assert not os.path.exists(f"/proc/{lost}")
    assert reaper.reap() == []
    await reaper.stop()
    often = OrphanReaper(Log("executor"), interval=0.01)
    await often.start()
    lost = orphan()
    while os.path.exists(f"/proc/{lost}"):
        await asyncio.sleep(0.01)
    await often.stop()
asyncio.run(main())
"""


def test_an_orphan_is_reaped_and_a_child_is_left_to_its_parent() -> None:
    subprocess.run([sys.executable, "-c", ADOPT], check=True, timeout=300)
