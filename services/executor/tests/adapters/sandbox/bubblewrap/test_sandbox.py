"""The bubblewrap sandbox: start, environment, mounts, limits, exit reports and cleanup."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from services.executor.adapters.sandbox.bubblewrap import environment
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.exit_report import error_for_exit
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupPolicy, find_cgroup_dirs
from services.executor.adapters.sandbox.port import ExitKind, Plan
from services.executor.adapters.sandbox.rootfs import interpreter_path
from services.executor.tests.sandboxes import MAKERS, MIB, attempt, missing, processes_with, python

KINDS = [kind for kind in MAKERS if kind.startswith("bubblewrap")]
REPOSITORY = Path(__file__).parents[6]


@pytest.fixture(params=KINDS)
async def bubblewrap(request: pytest.FixtureRequest) -> AsyncIterator[BubblewrapSandbox]:
    if why := await missing(request.param):
        pytest.skip(f"{request.param}: {why}")
    made = MAKERS[request.param]()
    assert isinstance(made, BubblewrapSandbox)
    yield made
    await made.close()


def launchers(parent: int) -> list[int]:
    """Return the running launchers of a process."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    found = [int(pid) for pid in children if b"sandbox.launcher" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return [pid for pid in found if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"]


def until(holds: Callable[[], bool], seconds: float = 300.0) -> None:
    """Poll a condition that has no event. It is bounded here: the test timeout does not end a thread."""
    last = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < last
        os.sched_yield()


def alive(pid: int) -> bool:
    """Return whether a process runs. One that ended but was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def inside(folder: str) -> list[Path]:
    return list(Path(folder).iterdir())


def user_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def held(pid: int) -> tuple[bytes, list[str]]:
    """Return the environment and the open files of a process."""
    process = Path(f"/proc/{pid}")
    return (process / "environ").read_bytes(), [str(entry.readlink()) for entry in (process / "fd").iterdir()]


async def test_a_process_reads_stdin_and_writes_stdout(bubblewrap: BubblewrapSandbox) -> None:
    process = await bubblewrap.start(Plan(("/bin/cat",)))
    for word in (b"one", b"two" * 100_000):
        process.stdin.write(word)
        assert await process.stdout.readexactly(len(word)) == word
    process.stdin.close()
    assert await process.stdout.read() == b""
    assert (await process.wait()).kind is ExitKind.EXITED
    assert (await process.kill()).kind is ExitKind.EXITED


async def test_exit_report_has_code_stderr_and_usage(bubblewrap: BubblewrapSandbox) -> None:
    tried = await attempt(bubblewrap, python("import sys; sys.exit('told on standard error')"))
    assert (tried.report.kind, tried.report.code) == (ExitKind.EXITED, 1)
    assert tried.report.stderr_tail == "told on standard error\n"
    assert tried.report.cpu_seconds > 0
    assert tried.report.peak_memory_bytes > 0


async def test_a_signal_is_reported_as_a_crash(bubblewrap: BubblewrapSandbox) -> None:
    tried = await attempt(bubblewrap, python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))
    assert (tried.report.kind, tried.report.code) == (ExitKind.CRASHED, signal.SIGSEGV)


async def test_a_missing_program_exits_with_127(bubblewrap: BubblewrapSandbox) -> None:
    process = await bubblewrap.start(Plan(("/usr/bin/not-there",)))
    assert ((await process.wait()).kind, (await process.wait()).code) == (ExitKind.EXITED, 127)


async def test_process_environment_is_that_of_the_plan(bubblewrap: BubblewrapSandbox) -> None:
    plan = Plan(("/usr/bin/env",), environment={"A": "1", "EMPTY": "", "PATH": "/x"})
    lines = (await attempt(bubblewrap, plan)).output.decode().splitlines()
    assert sorted(line for line in lines if not line.startswith("PWD=")) == ["A=1", "EMPTY=", "PATH=/x"]


async def test_process_starts_in_tmp_as_user_nobody(bubblewrap: BubblewrapSandbox) -> None:
    code = "import os, socket; print(os.getcwd(), os.getuid(), os.getgid(), os.getgroups() or '', socket.gethostname())"
    assert (await attempt(bubblewrap, python(code))).output.decode().split()[:3] == ["/tmp", "65534", "65534"]


async def test_each_sandbox_has_its_own_host_user(bubblewrap: BubblewrapSandbox) -> None:
    """As root two sandboxes have two other users; otherwise both have the current user."""
    marker = new_id()
    started = [
        await bubblewrap.start(python("import os, signal; os.write(1, b'x'); signal.pause()", marker)) for _ in range(2)
    ]
    for process in started:
        await process.stdout.readexactly(1)
    users = {user_of(pid) for pid in processes_with(marker)}
    assert len(users) == (2 if os.geteuid() == 0 else 1)
    assert (0 in users) is False
    for process in started:
        await process.kill()


async def test_readable_mounts_cannot_be_changed(bubblewrap: BubblewrapSandbox, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    (hidden / "shown").mkdir(parents=True)
    (hidden / "shown/file").write_text("content")
    (hidden / "secret").write_text("secret")
    hidden.chmod(0o700)
    plan = python(
        "print(open('/in/file').read(), flush=True); open('/in/file', 'w')", readable=((str(hidden / "shown"), "/in"),)
    )
    tried = await attempt(bubblewrap, plan)
    assert (tried.output, tried.report.code) == (b"content\n", 1)
    assert (hidden / "shown/file").read_text() == "content"


async def test_a_single_file_can_be_mounted(bubblewrap: BubblewrapSandbox, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("print('ran')")
    plan = Plan(
        (interpreter_path(), "-I", "-S", "/run/worker.py"), readable=((str(tmp_path / "one.py"), "/run/worker.py"),)
    )
    assert (await attempt(bubblewrap, plan)).output == b"ran\n"


async def test_changes_in_writable_mounts_persist(bubblewrap: BubblewrapSandbox, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "deep").mkdir(parents=True, mode=0o755)
    (work / "deep/old").write_text("old")
    outside = tmp_path / "outside"
    outside.write_text("outside")
    (work / "link").symlink_to(outside)
    code = (
        "open('/w/deep/new', 'w').write('new'); open('/w/deep/old', 'a').write('er')\nimport os; "
        "os.path.exists('/w/link') and print('seen')"
    )
    tried = await attempt(bubblewrap, python(code, writable=((str(work), "/w"),)))
    assert (tried.output, tried.report.code) == (b"", 0)
    assert ((work / "deep/new").read_text(), (work / "deep/old").read_text()) == ("new", "older")
    assert (outside.stat().st_uid, outside.read_text()) == (os.geteuid(), "outside")


async def test_egress_socket_is_reachable_inside(bubblewrap: BubblewrapSandbox, tmp_path: Path) -> None:
    path = tmp_path / "egress.sock"

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"through")
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        code = (
            "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/egress.sock'); "
            "print(s.recv(100).decode())"
        )
        tried = await attempt(bubblewrap, python(code, egress_socket=str(path)))
    assert tried.output == b"through\n"


async def test_standard_streams_can_be_opened_by_name(bubblewrap: BubblewrapSandbox) -> None:
    process = await bubblewrap.start(Plan(("/bin/sh", "-c", "cat /dev/stdin > /dev/stdout")))
    process.stdin.write(b"hello")
    process.stdin.close()
    assert await process.stdout.read() == b"hello"
    assert (await process.wait()).code == 0


@pytest.mark.parametrize(
    "plan",
    [
        Plan(("/bin/true",), readable=(("/not/there", "/in"),)),
        Plan(("/bin/true",), readable=(("/usr", "/usr/bin/not/possible"),)),
        Plan(("/bin/true",), environment={"A": "x\0--bind\0/\0/tmp"}),
        Plan(("/bin/true", "a\0b")),
        Plan(("/bin/true",), environment={"A": "\ud800"}),
        Plan(("/bin/true",), environment={"A=B": "x"}),
    ],
    ids=["no source", "no place", "NUL in a value", "NUL in an argument", "no text", "no name"],
)
async def test_an_impossible_plan_does_not_run(bubblewrap: BubblewrapSandbox, plan: Plan) -> None:
    with pytest.raises(MeshError) as refused:
        # Some plans fail only after the start.
        raise error_for_exit(await (await bubblewrap.start(plan)).wait(), 1.0)
    assert refused.value.reason is Reason.SANDBOX_UNAVAILABLE
    assert (await attempt(bubblewrap, Plan(("/bin/true",)))).report.kind is ExitKind.EXITED


async def test_many_sandboxes_run_in_parallel(bubblewrap: BubblewrapSandbox) -> None:
    async def one(number: int) -> bytes:
        return (await attempt(bubblewrap, Plan(("/bin/echo", str(number))))).output

    assert await asyncio.gather(*map(one, range(24))) == [f"{number}\n".encode() for number in range(24)]


async def test_a_large_plan_is_accepted(bubblewrap: BubblewrapSandbox) -> None:
    long = {f"V{number}": "x" * 1000 for number in range(100)}
    tried = await attempt(bubblewrap, python("import os; print(sum(map(len, os.environ.values())))", environment=long))
    assert int(tried.output) >= 100_000


async def test_a_canceled_start_leaves_no_process(bubblewrap: BubblewrapSandbox) -> None:
    await attempt(bubblewrap, Plan(("/bin/true",)))
    marker = new_id()
    for turns in (*range(12), *range(12, 600, 25)):
        starting = asyncio.create_task(bubblewrap.start(python("import signal; signal.pause()", marker)))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        for outcome in await asyncio.gather(starting, return_exceptions=True):
            if not isinstance(outcome, BaseException):
                await outcome.kill()
    await asyncio.to_thread(until, lambda: not processes_with(marker))


async def test_wait_can_be_canceled(bubblewrap: BubblewrapSandbox) -> None:
    process = await bubblewrap.start(Plan(("/bin/cat",)))
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    assert (await asyncio.gather(process.kill(), process.kill(), process.wait()))[2].kind is ExitKind.KILLED


async def test_close_kills_running_processes(bubblewrap: BubblewrapSandbox) -> None:
    marker = new_id()
    process = await bubblewrap.start(python("import os, signal; os.write(1, b'x'); signal.pause()", marker))
    await process.stdout.readexactly(1)
    await bubblewrap.close()
    assert (await process.wait()).kind is ExitKind.KILLED
    assert processes_with(marker) == []
    assert launchers(os.getpid()) == []
    with pytest.raises(MeshError) as refused:
        await bubblewrap.start(Plan(("/bin/true",)))
    assert refused.value.reason is Reason.SANDBOX_UNAVAILABLE


async def test_an_unused_sandbox_starts_no_launcher() -> None:
    unused = BubblewrapSandbox("test")
    assert unused.name == "process/bubblewrap"
    assert launchers(os.getpid()) == []
    await unused.close()


async def test_a_killed_launcher_ends_its_sandboxes_and_is_replaced(
    bubblewrap: BubblewrapSandbox,
) -> None:
    marker = new_id()
    process = await bubblewrap.start(python("import os, signal; os.write(1, b'x'); signal.pause()", marker))
    await process.stdout.readexactly(1)
    (launcher,) = launchers(os.getpid())
    os.kill(launcher, signal.SIGKILL)
    assert (await process.wait()).kind is ExitKind.CRASHED
    assert await process.stdout.read() == b""
    await asyncio.to_thread(until, lambda: not processes_with(marker))
    assert (await attempt(bubblewrap, Plan(("/bin/true",)))).report.kind is ExitKind.EXITED


EXECUTOR = """
import asyncio, signal, sys
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.port import Plan
from services.executor.adapters.sandbox.rootfs import interpreter_path
async def main():
    sandbox = BubblewrapSandbox("killed")
    code = (
        "import os, signal\\nfor _ in range(3): os.fork()\\nos.setsid() if os.getpid() != os.getpgrp() else None\\n"
        "os.write(1, b'x')\\nwhile True: signal.pause()"
    )
    process = await sandbox.start(Plan((interpreter_path(), "-I", "-S", "-c", code, sys.argv[1])))
    await process.stdout.readexactly(1)
    print("ready", flush=True)
    await process.wait()
asyncio.run(main())
"""


async def test_a_killed_executor_leaves_no_process_and_no_cgroup() -> None:
    """The launcher removes processes and cgroups when its executor has ended."""
    if why := await missing("bubblewrap"):
        pytest.skip(why)
    marker = new_id()
    executor = await asyncio.create_subprocess_exec(
        sys.executable, "-c", EXECUTOR, marker, cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    assert executor.stdout is not None
    assert await executor.stdout.readline() == b"ready\n"
    left = [*launchers(executor.pid), *processes_with(marker)]
    assert left
    executor.kill()
    await executor.wait()
    groups = {cgroup_dir.path for cgroup_dir in find_cgroup_dirs().values()}
    await asyncio.to_thread(until, lambda: not processes_with(marker) and not any(map(alive, left)))
    assert [path for folder in groups for path in inside(folder) if path.name.startswith("toolmesh-killed-")] == []


async def test_a_persistent_fork_bomb_is_killed(bubblewrap: BubblewrapSandbox) -> None:
    """Where refused forks are counted, it is killed before its deadline."""
    if "pids" in bubblewrap._prepare_once().hierarchy.missing:
        pytest.skip("without a pids cgroup a refused fork cannot be told from a failed one")
    code = "import os\nwhile True:\n try: os.fork()\n except OSError: continue"
    assert (await attempt(bubblewrap, python(code, processes=8))).report.kind is ExitKind.PROCESS_LIMIT


async def test_cpu_limit_applies_to_the_whole_process_tree(bubblewrap: BubblewrapSandbox) -> None:
    code = "import os\nfor _ in range(7): os.fork() == 0 and exec('while True: pass')\nfor _ in range(7): os.wait()"
    report = (await attempt(bubblewrap, python(code, cpu_seconds=0.8, millicpus=2000))).report
    assert report.kind is ExitKind.CPU_LIMIT


SIBLINGS = """
import os, signal, sys
for _ in range(7):
    if os.fork() == 0:
        held = b'x' * (20 << 20)
        signal.pause()
sys.exit(max(os.wait()[1] for _ in range(7)) % 251)
"""


async def test_memory_limit_applies_to_the_whole_process_tree(bubblewrap: BubblewrapSandbox) -> None:
    assert (await attempt(bubblewrap, python(SIBLINGS, memory_bytes=64 * MIB))).report.kind is ExitKind.OUT_OF_MEMORY


async def test_no_cgroup_is_left_after_a_process(bubblewrap: BubblewrapSandbox) -> None:
    await attempt(bubblewrap, Plan(("/bin/true",)))
    parents = bubblewrap._prepare_once().hierarchy.parents.values()
    left = [entry for cgroup_dir in parents for entry in inside(cgroup_dir.path) if entry.is_dir()]
    assert left == []


async def test_unavailable_reason_is_set_if_bubblewrap_fails(
    bubblewrap: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bubblewrap.unavailable_reason() == ""
    lame = BubblewrapSandbox("test", cgroups=CgroupPolicy("off"))
    lame._prepare_once().config["bwrap"] = "/usr/bin/false"
    lame._prepare_once().config["bwrap_home"] = "/usr/bin"
    assert lame.unavailable_reason() != ""
    await lame.close()


async def test_required_cgroups_make_the_sandbox_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.executor.adapters.sandbox.launcher.cgroup_hierarchy.find_cgroup_dirs", lambda _: {})
    strict = BubblewrapSandbox("test", cgroups=CgroupPolicy("required"))
    assert "memory" in strict.unavailable_reason()
    with pytest.raises(MeshError) as refused:
        await strict.start(Plan(("/bin/true",)))
    assert refused.value.reason is Reason.SANDBOX_UNAVAILABLE
    await strict.close()


async def test_a_machine_without_a_seccomp_filter_has_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.bpf, "ARCHITECTURES", {})  # type: ignore[attr-defined]
    assert BubblewrapSandbox("test").unavailable_reason() != ""


async def test_launcher_inherits_no_environment_and_no_socket(
    bubblewrap: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLMESH_DATABASE_URL", "postgresql://secret")
    with socket.socketpair()[0]:
        await attempt(bubblewrap, Plan(("/bin/true",)))
        (launcher,) = launchers(os.getpid())
        environment, opened = held(launcher)
    assert environment == b""
    assert len([link for link in opened if link.startswith("socket:")]) == 1
    assert json.dumps(bubblewrap._prepare_once().config).count("secret") == 0


def test_bubblewrap_probe_changes_no_host_file() -> None:
    """As root the owner of shared host files could be changed."""
    before = [(Path(path).stat().st_uid, Path(path).stat().st_mode) for path in ("/dev/null", "/usr", "/run", "/tmp")]
    sandbox = BubblewrapSandbox("test")
    sandbox.unavailable_reason()
    asyncio.run(sandbox.close())
    assert before == [
        (Path(path).stat().st_uid, Path(path).stat().st_mode) for path in ("/dev/null", "/usr", "/run", "/tmp")
    ]


async def test_a_canceled_start_leaves_no_file_open(bubblewrap: BubblewrapSandbox) -> None:
    await (await bubblewrap.start(Plan(("/bin/cat",)))).kill()

    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = opened()
    for steps in range(1, 12):
        starting = asyncio.create_task(bubblewrap.start(Plan(("/bin/cat",))))
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    async with asyncio.timeout(90):
        while opened() != before:  # noqa: ASYNC110  (closing a pipe gives no event)
            await asyncio.sleep(0.005)
