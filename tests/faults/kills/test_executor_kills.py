"""Executors killed at random moments while they run tools in both sandboxes: the next start leaves nothing of them."""

from __future__ import annotations

import asyncio
import os
import random
import re
import secrets
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import find_cgroup_dirs
from services.executor.adapters.sandbox.launcher.process_tree import descendants
from services.executor.adapters.sandbox.wait_pids import wait_pids
from services.executor.tests.sandboxes import missing
from services.executor.tests.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("TOOLMESH_TEST_KILLS", "200"))
AT_ONCE = 4
LONGEST_PAUSE_SECONDS = 3.0
PACKS = Path(__file__).resolve().parents[3] / "examples" / "packs"
# An executor without its peers: everything of it that leaves something on the machine.
EXECUTOR = """
import asyncio, random, sys
from pathlib import Path
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.environment import RunnerEnvironment
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.adapters.sandbox.orphan_reaper import OrphanReaper
from services.executor.tests.sandboxes import python

label, mode, packs = sys.argv[1:]
CODE = "import os, time\\nos.fork()\\nos.write(1, b'x')\\nopen('/w/f', 'w').write('x')\\ntime.sleep(%r)"

async def keep_running(environment, sandbox):
    while True:
        scratch = await asyncio.to_thread(environment._scratch.create, 1 << 20, 100)
        gate = await environment.open_egress_to(["example.com"], [443])
        plan = python(CODE % random.random(), label, egress_socket=gate.path,
                      writable=((str(scratch.source), "/w"),), mount_namespace=scratch.namespace)
        process = await sandbox.start(plan)
        await process.stdout.read(1)
        print("ran", flush=True)
        await (process.kill() if random.random() < 0.3 else process.wait())
        await gate.close()
        await asyncio.to_thread(scratch.remove)

async def main():
    sandboxes = {"process": BubblewrapSandbox(label), "kernel": GvisorSandbox(label)}
    environment = RunnerEnvironment(sandboxes, Log("executor", descriptor=2), packs=[Path(packs)])
    await OrphanReaper(Log("executor", descriptor=2), interval=0.2).start()
    await environment.start()
    if mode == "sweep":
        # Creates one of each kind, and so removes what others left.
        await environment.open_egress_to(["example.com"], [443])
        await environment.stop()
        return
    usable = [sandbox for sandbox in sandboxes.values() if not sandbox.unavailable_reason()]
    running = [asyncio.ensure_future(keep_running(environment, sandbox)) for sandbox in usable for _ in range(2)]
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in running:
        if task.done():
            task.result()
asyncio.run(main())
"""


async def start(label: str, mode: str) -> asyncio.subprocess.Process:
    command = [sys.executable, "-c", EXECUTOR, label, mode, str(PACKS)]
    return await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=1 << 24
    )


async def kill_at_a_random_moment(label: str, moments: random.Random) -> tuple[int, list[int]]:
    """Start an executor and kill it: half of them while they start, the others while tools run. Return its PID and its
    processes at that moment."""
    pause, after_a_tool = moments.uniform(0, LONGEST_PAUSE_SECONDS), moments.random() < 0.5
    executor = await start(label, "run")
    assert executor.stdout is not None
    if after_a_tool:
        assert await executor.stdout.readline() == b"ran\n"
    with suppress(TimeoutError):
        async with asyncio.timeout(pause):
            await executor.wait()
    assert executor.returncode is None, "an executor ended by itself"
    family = descendants(executor.pid)
    executor.send_signal(signal.SIGKILL)
    # Its pipes end with the last process that has them: one that outlives it is a failure.
    async with asyncio.timeout(120):
        await executor.wait()
    return executor.pid, family


def processes_of(label: str, pids: set[int]) -> list[str]:
    """Return the command lines of processes of killed executors: tools by their label, gVisor's by its folder."""
    folder = re.compile(rf"toolmesh-\w+-[0-9a-f]{{6}}-({'|'.join(map(str, pids))})-")
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                if label in line or folder.search(line):
                    found.append(line)
    return found


def left_on_disk(label: str, pids: set[int]) -> list[str]:
    """Return the folders, mounts and cgroups of killed executors."""
    owned = re.compile(rf"toolmesh-\w+-[0-9a-f]{{6}}-({'|'.join(map(str, pids))})-")
    folders = [str(path) for parent in ("/run", "/tmp") for path in Path(parent).glob("toolmesh-*")]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    groups = [
        str(path)
        for place in {each.path for each in find_cgroup_dirs().values()}
        for path in Path(place).glob("toolmesh-*")
    ]
    return [*filter(owned.search, (*folders, *mounts)), *(path for path in groups if label in path)]


async def test_killed_executors_leave_nothing_after_the_next_start() -> None:
    if why := await missing("bubblewrap"):
        pytest.skip(why)
    label, seed = f"kills{secrets.token_hex(4)}", secrets.randbits(32)
    moments, pids = random.Random(seed), set[int]()
    for _ in range(0, KILLS, AT_ONCE):
        killed = await asyncio.gather(*(kill_at_a_random_moment(label, moments) for _ in range(AT_ONCE)))
        pids |= {pid for pid, _ in killed}
        assert await wait_pids([pid for _, family in killed for pid in family], 120.0)
    await until(lambda: not processes_of(label, pids))
    sweeping = await start(label, "sweep")
    _, wrong = await sweeping.communicate()
    assert sweeping.returncode == 0, wrong.decode()[-2000:]
    assert left_on_disk(label, pids | {sweeping.pid}) == [], f"seed {seed}"
