"""The gVisor sandbox: exit reports, limits and cleanup. Escape attempts are in test_escapes.py."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.adapters.sandbox.gvisor.memory_file import MemoryFile
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupPolicy
from services.executor.adapters.sandbox.launcher.process_tree import descendants
from services.executor.adapters.sandbox.port import ExitKind, Plan
from services.executor.adapters.sandbox.wait_pids import wait_pids
from services.executor.tests.sandboxes import attempt, missing, python
from services.executor.tests.waiting import until

MIB = 1 << 20
# Much longer than needed, for busy machines.
_PATIENCE = 30.0
BUSY = "import os\nfor _ in range(3): os.fork()\nos.write(1, b'x')\nwhile True: continue"

UNMAPPED_MEMORY = """
import os, signal
for _ in range(20):
    descriptor = os.memfd_create('x')
    for _ in range(16): os.write(descriptor, b'x' * (1 << 20))
signal.pause()
"""


@pytest.fixture(params=["preferred", "off"])
async def gvisor(request: pytest.FixtureRequest) -> AsyncIterator[GvisorSandbox]:
    """gVisor with cgroups where available, and without."""
    if why := await missing("gvisor"):
        pytest.skip(why)
    made = GvisorSandbox("test", cgroups=CgroupPolicy(request.param))
    yield made
    await made.close()


async def test_a_process_gets_arguments_environment_and_stdin(gvisor: GvisorSandbox) -> None:
    code = "import os, sys; print(sys.argv[1], os.environ['A'], sys.stdin.read(), os.getcwd(), os.getuid())"
    process = await gvisor.start(Plan((*python(code).argv, "a b"), environment={"A": "b c"}))
    process.stdin.write(b"d e")
    process.stdin.close()
    assert await process.stdout.read() == b"a b b c d e /tmp 65534\n"
    report = await process.wait()
    assert (report.kind, report.code, gvisor.name) == (ExitKind.EXITED, 0, "kernel/gvisor")


@pytest.mark.parametrize("code", [0, 3, 126, 127, 128])
async def test_exit_codes_are_reported(gvisor: GvisorSandbox, code: int) -> None:
    report = (await attempt(gvisor, python(f"raise SystemExit({code})"))).report
    assert (report.kind, report.code) == (ExitKind.EXITED, code)


@pytest.mark.parametrize(
    ("code", "limits", "kind"),
    [
        ("import os; os.kill(os.getpid(), 11)", {}, ExitKind.CRASHED),
        ("held = []\nwhile True: held.append(b'a' * (1 << 20))", {"memory_bytes": 96 * MIB}, ExitKind.OUT_OF_MEMORY),
        (UNMAPPED_MEMORY, {"memory_bytes": 96 * MIB}, ExitKind.OUT_OF_MEMORY),
        ("while True: continue", {"cpu_seconds": 0.3}, ExitKind.CPU_LIMIT),
        ("import os\nfor _ in range(50): os.fork()", {"processes": 4}, ExitKind.PROCESS_LIMIT),
        ("open('/tmp/x', 'wb').write(bytes(1 << 20))", {"file_bytes": MIB // 2}, ExitKind.FILE_LIMIT),
        ("open('/tmp/x', 'wb').write(bytes(1 << 20))", {"scratch_bytes": MIB // 2}, ExitKind.FILE_LIMIT),
        ("import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)", {}, ExitKind.FORBIDDEN_CALL),
    ],
    ids=["crash", "memory", "unmapped memory", "cpu", "processes", "file", "scratch", "forbidden"],
)
async def test_exit_kinds_are_reported(
    gvisor: GvisorSandbox, code: str, limits: dict[str, float], kind: ExitKind
) -> None:
    assert (await attempt(gvisor, python(code, **limits))).report.kind is kind


async def test_a_container_without_measurable_memory_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    if why := await missing("gvisor"):
        pytest.skip(why)
    monkeypatch.setattr(MemoryFile, "used_bytes", lambda *_: None)
    sandbox = GvisorSandbox("test", cgroups=CgroupPolicy("off"))
    try:
        report = (await attempt(sandbox, python("import signal; signal.pause()"))).report
    finally:
        await sandbox.close()
    assert report.kind is ExitKind.NOT_STARTED


async def test_threads_and_children_run_within_the_process_limit(gvisor: GvisorSandbox) -> None:
    code = (
        "import threading, subprocess, sys\nt = threading.Thread(target=print, args=(1,))\nt.start(); "
        "t.join()\nsubprocess.run(['/bin/echo', '2'])"
    )
    tried = await attempt(gvisor, python(code, processes=8))
    assert (sorted(tried.output.split()), tried.report.kind) == ([b"1", b"2"], ExitKind.EXITED)


async def test_a_missing_program_or_mount_is_reported_as_not_started(gvisor: GvisorSandbox) -> None:
    report = (await attempt(gvisor, Plan(("/no/such/program",)))).report
    assert report.kind is ExitKind.NOT_STARTED
    for shown in (("/no/such/folder", "/a"), ("/usr", "/a\0b"), ("/usr", "/../../../a")):
        with pytest.raises(MeshError) as caught:
            await gvisor.start(Plan(("/bin/true",), readable=(shown,)))
        assert caught.value.reason is Reason.SANDBOX_UNAVAILABLE


async def test_kill_leaves_no_process(gvisor: GvisorSandbox) -> None:
    others = set(descendants(os.getpid()))
    process = await gvisor.start(python(BUSY, millicpus=200))
    await process.stdout.readexactly(8)
    family = [pid for pid in descendants(os.getpid()) if pid not in others]
    assert len(family) >= 3
    assert (await process.kill()).kind is ExitKind.KILLED
    assert await wait_pids(family, _PATIENCE)
    assert (await process.kill()).kind is ExitKind.KILLED


async def test_kill_works_at_any_moment_of_the_start(gvisor: GvisorSandbox) -> None:
    for moment in (0.0, 0.01, 0.03, 0.05, 0.08, 0.12):
        others = set(descendants(os.getpid()))
        process = await gvisor.start(python(BUSY))
        # The delay is what the test varies; it synchronizes nothing.
        await asyncio.sleep(moment)
        family = [pid for pid in descendants(os.getpid()) if pid not in others]
        assert (await process.kill()).kind is ExitKind.KILLED
        assert await wait_pids(family, _PATIENCE)


async def test_a_start_canceled_while_preparing_leaves_nothing(gvisor: GvisorSandbox) -> None:
    await attempt(gvisor, Plan(("/bin/true",)))
    environment = gvisor._environment
    assert environment is not None
    made = [environment.folder.path, *(Path(cgroup_dir.path) for cgroup_dir in environment.hierarchy.parents.values())]

    def prepared() -> list[Path]:
        return [entry for folder in made for entry in folder.glob("t*/")]

    await until(lambda: prepared() == [])
    for _ in range(5):
        starting = asyncio.create_task(gvisor.start(Plan(("/bin/cat",))))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await until(lambda: prepared() == [])


async def test_endless_stderr_is_drained_and_truncated(gvisor: GvisorSandbox) -> None:
    code = "import os\nfor _ in range(300): os.write(2, b'x' * 65536)\nos.write(2, b'last')"
    report = (await attempt(gvisor, python(code))).report
    assert (report.kind, len(report.stderr_tail)) == (ExitKind.EXITED, 16_384)
    assert report.stderr_tail.endswith("last")


async def test_only_writable_mounts_can_be_changed(gvisor: GvisorSandbox, tmp_path: Path) -> None:
    for name in ("read", "write"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").write_text("old")
        # Permissions are open, so only the mount can prevent a write.
        (tmp_path / name / "old").chmod(0o666)
    plan = python(
        "open('/w/new', 'w').write(open('/r/old').read()); open('/w/old', 'a').write('er')\nopen('/r/old', 'w')",
        readable=((str(tmp_path / "read"), "/r"),),
        writable=((str(tmp_path / "write"), "/w"),),
    )
    assert (await attempt(gvisor, plan)).report.code == 1
    assert (tmp_path / "write" / "new").read_text() == "old"
    assert (tmp_path / "write" / "old").read_text() == "older"
    assert (tmp_path / "read" / "old").read_text() == "old"


async def test_close_kills_containers_and_removes_the_folder(gvisor: GvisorSandbox) -> None:
    process = await gvisor.start(python(BUSY))
    await process.stdout.readexactly(8)
    environment = gvisor._environment
    assert environment is not None
    await gvisor.close()
    assert (await process.wait()).kind is ExitKind.KILLED
    assert not environment.folder.path.exists()
    with pytest.raises(MeshError) as caught:
        await gvisor.start(python("print()"))
    assert caught.value.reason is Reason.SANDBOX_UNAVAILABLE


async def test_without_runsc_the_reason_says_how_to_get_it(tmp_path: Path) -> None:
    sandbox = GvisorSandbox(runsc=tmp_path / "runsc")
    assert "runsc" in sandbox.unavailable_reason()
    with pytest.raises(MeshError) as caught:
        await sandbox.start(python("print()"))
    assert caught.value.reason is Reason.SANDBOX_UNAVAILABLE
    await sandbox.close()


async def test_a_runsc_that_fails_the_probe_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "runsc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "runsc").chmod(0o755)
    sandbox = GvisorSandbox(runsc=tmp_path / "runsc")
    assert sandbox.unavailable_reason()
    await sandbox.close()


@pytest.mark.parametrize(("refused", "chosen"), [("none", "systrap"), ("systrap", "ptrace")])
async def test_the_fastest_platform_that_works_is_used(tmp_path: Path, refused: str, chosen: str) -> None:
    program = tmp_path / "runsc"
    program.write_text(f'#!/bin/sh\ncase "$*" in *--platform={refused}*) exit 1;; esac\n')
    program.chmod(0o755)
    sandbox = GvisorSandbox(runsc=program)
    assert sandbox.platform == ""
    assert sandbox.unavailable_reason() == ""
    assert sandbox.platform == chosen
    await sandbox.close()


EXECUTOR = f"""
import asyncio, os
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.tests.sandboxes import python
async def main():
    process = await GvisorSandbox("killed").start(python({BUSY!r}))
    await process.stdout.readexactly(8)
    print("running", flush=True)
    await process.wait()
asyncio.run(main())
"""


async def test_no_container_outlives_a_killed_executor() -> None:
    if why := await missing("gvisor"):
        pytest.skip(why)
    executor = subprocess.Popen([sys.executable, "-c", EXECUTOR], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert executor.stdout is not None
    assert executor.stdout.readline() == "running\n"
    family = descendants(executor.pid)
    executor.send_signal(signal.SIGKILL)
    executor.wait()
    executor.stdout.close()
    assert await wait_pids(family, _PATIENCE)


def test_gvisor_probe_changes_no_host_file() -> None:
    """runsc changes the owner of its standard input."""
    before = Path("/dev/null").stat()
    sandbox = GvisorSandbox("test")
    why = sandbox.unavailable_reason()
    asyncio.run(sandbox.close())
    if why:
        pytest.skip(why)
    after = Path("/dev/null").stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
