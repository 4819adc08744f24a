"""Escape attempts by real processes in every sandbox: each one fails and is reported correctly."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from libs.common.errors import Reason
from libs.common.ids import new_id
from services.executor.adapters.sandbox.port import ExitKind, Plan, Sandbox
from services.executor.adapters.sandbox.scratch.bounded_scratch import BoundedScratch
from services.executor.tests.sandboxes import (
    MIB,
    Tried,
    attempt,
    processes_with,
    python,
    sandbox,
)

__all__ = ["sandbox"]

ESCAPED = b"escaped"
CALL = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    if libc.syscall(number, *values) < 0:
        sys.exit(ctypes.get_errno())
"""
# Numbers of system calls, by architecture: x86_64, aarch64.
NUMBERS = {
    "ptrace": (101, 117),
    "mount": (165, 40),
    "unshare": (272, 97),
    "setns": (308, 268),
    "pivot_root": (155, 41),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "open_by_handle_at": (304, 265),
    "process_vm_readv": (310, 270),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
}
MACHINE = {"x86_64": 0, "aarch64": 1}[os.uname().machine]


async def try_to(sandbox: Sandbox, code: str, *arguments: str, **limits: Any) -> Tried:
    """Run code that prints `escaped` if it succeeds, and check that it does not."""
    tried = await attempt(sandbox, python(f"{code}\nprint('escaped')", *arguments, **limits))
    assert ESCAPED not in tried.output
    return tried


async def test_allowed_operations_work(sandbox: Sandbox) -> None:
    """The control: allowed operations succeed in the same setup."""
    code = (
        "import os, threading; t = threading.Thread(target=print, args=('escaped',)); t.start(); "
        "t.join(); open('/tmp/x', 'w').write('x')"
    )
    tried = await attempt(sandbox, python(code))
    assert (tried.output, tried.report.kind, tried.report.code) == (b"escaped\n", ExitKind.EXITED, 0)


async def test_host_secrets_are_absent(sandbox: Sandbox, tmp_path: Path) -> None:
    key = tmp_path / "mesh.key"
    key.write_text("escaped")
    key.chmod(0o644)
    for path in ("/etc/shadow", str(key), f"/proc/1/root{key}", "/root/.ssh", "/home", "/var/lib", "/sys/kernel"):
        tried = await try_to(
            sandbox,
            "import os, sys; path = sys.argv[1]; os.listdir(path) if os.path.isdir(path) else print(open(path).read())",
            path,
        )
        assert tried.error.reason is Reason.EXECUTION_FAILED


@pytest.mark.parametrize(
    "folder", ["/", "/usr", "/usr/bin", "/etc", "/dev", "/dev/shm", "/proc", "/proc/self", "/run", "/var/tmp", "/root"]
)
async def test_nothing_can_be_written_outside_tmp(sandbox: Sandbox, folder: str) -> None:
    tried = await try_to(sandbox, "import sys; open(sys.argv[1] + '/written', 'w')", folder)
    assert tried.error.reason is Reason.EXECUTION_FAILED


async def test_the_interpreter_cannot_be_changed(sandbox: Sandbox) -> None:
    tried = await try_to(sandbox, "import os; open(os.__file__, 'a')")
    assert tried.error.reason is Reason.EXECUTION_FAILED


@pytest.mark.parametrize(
    "way",
    [
        "s = socket.create_connection(('192.0.2.1', 80), 1)",
        "s = socket.create_connection(('2001:db8::1', 80), 1)",
        "s = socket.create_connection(('169.254.169.254', 80), 1)",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('192.0.2.1', 53))",
        "s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.getaddrinfo('example.com', 80)",
        "s = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM); s.connect((2, 1))",
    ],
)
async def test_the_network_is_unreachable(sandbox: Sandbox, way: str) -> None:
    tried = await try_to(sandbox, f"import socket; {way}")
    assert tried.error.reason is Reason.EXECUTION_FAILED


async def test_ports_of_the_mesh_are_unreachable(sandbox: Sandbox) -> None:
    reached = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        tried = await try_to(sandbox, f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)")
    assert tried.error.reason is Reason.EXECUTION_FAILED
    assert not reached.is_set()


async def test_host_sockets_are_unreachable(sandbox: Sandbox, tmp_path: Path) -> None:
    """Neither sockets with a path nor abstract ones."""
    name = f"toolmesh-{new_id()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind(f"\0{name}")
        named.bind(str(tmp_path / "socket"))
        for listener in (abstract, named):
            listener.listen()
        for address in (f"\\0{name}", str(tmp_path / "socket")):
            tried = await try_to(sandbox, f"import socket; socket.socket(socket.AF_UNIX).connect('{address}')")
            assert tried.error.reason is Reason.EXECUTION_FAILED


async def test_a_fork_bomb_hits_the_process_limit(sandbox: Sandbox) -> None:
    tried = await try_to(sandbox, "import os\nwhile True: os.fork()", processes=16)
    assert tried.error.reason is Reason.RESOURCE_LIMIT_EXCEEDED
    assert tried.error.metadata["limit"] == "processes"


async def test_a_persistent_fork_bomb_can_be_killed(sandbox: Sandbox) -> None:
    """It ignores every refused fork; it is killed for them where they are counted, otherwise at its deadline."""
    marker = new_id()
    code = "import os\nos.write(1, b'ready')\nwhile True:\n try: os.fork()\n except OSError: continue"
    process = await sandbox.start(python(code, marker, processes=16))
    await process.stdout.readexactly(5)
    assert (await process.kill()).kind in (ExitKind.KILLED, ExitKind.PROCESS_LIMIT)
    assert processes_with(marker) == []


async def test_threads_count_as_processes(sandbox: Sandbox) -> None:
    code = "import threading\nwhile True: threading.Thread(target=threading.Event().wait, daemon=True).start()"
    tried = await try_to(sandbox, code, processes=16)
    assert tried.error.reason is Reason.RESOURCE_LIMIT_EXCEEDED


async def test_a_memory_bomb_is_reported_as_out_of_memory(sandbox: Sandbox) -> None:
    tried = await try_to(sandbox, "held = []\nwhile True: held.append(b'x' * (1 << 20))", memory_bytes=64 * MIB)
    assert tried.error.reason is Reason.TOOL_OUT_OF_MEMORY


HIDDEN_MEMORY = {
    "shared mappings": """
import mmap, os, signal
for _ in range(8):
    if os.fork() == 0:
        held = mmap.mmap(-1, 40 << 20)
        for place in range(0, 40 << 20, 4096): held[place] = 1
        signal.pause()
for _ in range(8): os.wait()
""",
    "memfd": """
import os, signal
for _ in range(20):
    descriptor = os.memfd_create('x')
    for _ in range(16): os.write(descriptor, b'x' * (1 << 20))
signal.alarm(20); signal.pause()
""",
    "System V": """
import ctypes, signal
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for _ in range(8):
    number = libc.shmget(0, 40 << 20, 0o1600)
    if number < 0: raise OSError(ctypes.get_errno())
    place = libc.shmat(number, None, 0)
    ctypes.memset(place, 1, 40 << 20); libc.shmdt(ctypes.c_void_p(place))
signal.alarm(20); signal.pause()
""",
}
"""Three times the limit, in ways that no single process shows."""


@pytest.mark.parametrize("way", HIDDEN_MEMORY)
async def test_unmapped_memory_is_limited(sandbox: Sandbox, way: str) -> None:
    """Memory that cannot be counted is refused; other memory is limited."""
    tried = await try_to(sandbox, HIDDEN_MEMORY[way], memory_bytes=100 * MIB)
    refused = tried.report.kind is ExitKind.EXITED and "Error" in tried.report.stderr_tail
    assert refused or tried.error.reason is Reason.TOOL_OUT_OF_MEMORY


async def test_a_disk_bomb_fills_only_its_own_tmp(sandbox: Sandbox) -> None:
    code = "import itertools\nfor n in itertools.count(): open(f'/tmp/{n}', 'wb').write(b'x' * (1 << 20))"
    tried = await try_to(sandbox, code, scratch_bytes=8 * MIB)
    assert tried.error.reason is Reason.RESOURCE_LIMIT_EXCEEDED
    assert tried.error.metadata["limit"] == "file_size"


async def test_a_file_cannot_grow_beyond_its_limit(sandbox: Sandbox) -> None:
    code = (
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nf = open('/tmp/x', 'wb')\n"
        "while True: f.write(b'x' * (1 << 16))"
    )
    tried = await try_to(sandbox, code, file_bytes=1 * MIB)
    assert tried.error.reason is Reason.RESOURCE_LIMIT_EXCEEDED
    assert tried.error.metadata["limit"] == "file_size"


async def test_endless_output_waits_for_its_reader(sandbox: Sandbox) -> None:
    process = await sandbox.start(python("import os\nwhile True: os.write(1, b'x' * 65536)"))
    assert len(await process.stdout.readexactly(4 * MIB)) == 4 * MIB
    assert (await process.kill()).kind is ExitKind.KILLED


async def test_endless_stderr_does_not_block(sandbox: Sandbox) -> None:
    code = "import os\nfor _ in range(512): os.write(2, b'x' * 65536)\nos.write(2, b'last words')\nprint('done')"
    tried = await attempt(sandbox, python(code))
    assert tried.output == b"done\n"
    assert len(tried.report.stderr_tail) <= 16_384
    assert tried.report.stderr_tail.endswith("last words")


async def test_endless_work_ends_at_the_cpu_limit(sandbox: Sandbox) -> None:
    tried = await try_to(sandbox, "while True: pass", cpu_seconds=1.0)
    assert tried.error.reason is Reason.RESOURCE_LIMIT_EXCEEDED
    assert tried.error.metadata["limit"] == "cpu"


@pytest.mark.parametrize("name", NUMBERS)
async def test_forbidden_system_calls_end_the_process(sandbox: Sandbox, name: str) -> None:
    tried = await try_to(sandbox, f"{CALL}\ncall({NUMBERS[name][MACHINE]}, 0, 0, 0, 0, 0)")
    if sandbox.name == "process/bubblewrap" and name != "io_uring_setup":
        assert tried.report.kind is ExitKind.FORBIDDEN_CALL
        assert tried.error.reason is Reason.TOOL_CRASHED
        assert tried.error.metadata["cause"] == "forbidden_call"
    else:
        assert tried.error.reason in (Reason.EXECUTION_FAILED, Reason.TOOL_CRASHED)


async def test_mount_with_valid_arguments_fails(sandbox: Sandbox) -> None:
    code = f"{CALL}\nos.mkdir('/tmp/m')\nif libc.mount(b'proc', b'/tmp/m', b'proc', 0, None) != 0: sys.exit(1)"
    assert (await try_to(sandbox, code)).error.reason in (Reason.EXECUTION_FAILED, Reason.TOOL_CRASHED)


@pytest.mark.parametrize("flag", [0x10000000, 0x40000000, 0x20000000, 0x00020000], ids=["user", "net", "pid", "mount"])
async def test_clone_cannot_create_namespaces(sandbox: Sandbox, flag: int) -> None:
    number = (56, 220)[MACHINE]
    code = (
        f"{CALL}\npid = libc.syscall({number}, {flag} | 17, 0, 0, 0, 0)\n"
        "if pid < 0: sys.exit(ctypes.get_errno())\nif pid == 0: os._exit(0)"
    )
    assert (await try_to(sandbox, code)).error.reason is Reason.EXECUTION_FAILED


async def test_outside_processes_cannot_be_killed(sandbox: Sandbox) -> None:
    bystander = await asyncio.create_subprocess_exec(sys.executable, "-c", "import signal; signal.pause()")
    # Low PIDs exist inside too: an orphaned test process has PID 1 as its parent.
    outside = [pid for pid in (bystander.pid, os.getpid(), os.getppid()) if pid > 100]
    try:
        code = (
            "import os, signal, sys\n"
            f"for pid in {outside}:\n"
            "    try: os.kill(pid, signal.SIGKILL)\n"
            "    except ProcessLookupError: continue\n"
            "    print('escaped')\n"
            "try: os.kill(1, signal.SIGKILL); os.kill(os.getppid(), signal.SIGKILL); os.kill(-1, signal.SIGKILL)\n"
            "finally: sys.exit(3)"
        )
        tried = await try_to(sandbox, code)
        assert bystander.returncode is None
        os.kill(bystander.pid, 0)
    finally:
        bystander.kill()
        await bystander.wait()
    assert tried.error.reason in (Reason.EXECUTION_FAILED, Reason.TOOL_CRASHED)


DAEMON = """
import os, signal, sys
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): continue
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            code = 'import signal\\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\\nwhile True: signal.pause()'
            os.execv(sys.executable, [sys.executable, '-I', '-S', '-c', code, sys.argv[1]])
        os._exit(0)
"""


async def test_no_process_survives_a_kill(sandbox: Sandbox) -> None:
    """Neither new sessions, double forks nor ignored signals help."""
    marker = new_id()
    code = f"{DAEMON}\nos.write(1, b'ready')\nwhile True: signal.pause()"
    process = await sandbox.start(python(code, marker))
    await process.stdout.readexactly(5)
    if sandbox.name == "process/bubblewrap":
        # In gVisor the host does not see them.
        assert processes_with(marker) != []
    assert (await process.kill()).kind is ExitKind.KILLED
    assert processes_with(marker) == []


async def test_no_daemon_survives_its_parent(sandbox: Sandbox) -> None:
    marker = new_id()
    tried = await attempt(sandbox, python(DAEMON, marker))
    assert tried.report.kind is ExitKind.EXITED
    assert processes_with(marker) == []


async def test_a_stopped_process_can_be_killed(sandbox: Sandbox) -> None:
    marker = new_id()
    code = "import os, signal\nos.write(1, b'ready')\nos.kill(os.getpid(), signal.SIGSTOP)"
    process = await sandbox.start(python(code, marker))
    await process.stdout.readexactly(5)
    assert (await process.kill()).kind is ExitKind.KILLED
    assert processes_with(marker) == []


LEAVE = (
    "import os\nfor folder in ('/tmp', '/dev/shm', '/var/tmp'):\n"
    " try: open(folder + '/secret', 'w').write('escaped')\n except OSError: continue\n"
)
LOOK = """
import os, sys
found = [name for folder in ('/tmp', '/dev/shm', '/var/tmp') if os.path.isdir(folder) for name in os.listdir(folder)]
others = {pid for pid in os.listdir('/proc') if pid.isdigit()} - {'1', str(os.getpid())}
if not found and not others: sys.exit(3)
"""


async def test_no_file_or_process_is_left_for_the_next_sandbox(sandbox: Sandbox) -> None:
    assert (await attempt(sandbox, python(LEAVE))).report.kind is ExitKind.EXITED
    assert (await try_to(sandbox, LOOK)).report.code == 3


async def test_concurrent_sandboxes_do_not_see_each_other(sandbox: Sandbox) -> None:
    process = await sandbox.start(python(f"{LEAVE}\nos.write(1, b'ready')\nimport signal\nsignal.pause()"))
    await process.stdout.readexactly(5)
    assert (await try_to(sandbox, LOOK)).report.code == 3
    await process.kill()


async def test_a_run_fills_its_own_copy_of_a_volume_and_no_other(sandbox: Sandbox, tmp_path: Path) -> None:
    scratch = BoundedScratch(lambda: tmp_path)
    try:
        own, other = scratch.create(MIB, 100), scratch.create(MIB, 100)
        (other.path / "secret").write_text("escaped")
        code = (
            "import itertools, os, sys; own, other = sys.argv[1:]\n"
            "open(own + '/kept', 'w').write('kept')\n"
            "if os.path.exists(other): print(open(other + '/secret').read())\n"
            "for name in itertools.count(): open(f'{own}/{name}', 'wb').write(b'x' * 65536)"
        )
        writable = ((str(own.source), "/volumes/own"),)
        limits = {"writable": writable, "mount_namespace": own.namespace}
        tried = await try_to(sandbox, code, "/volumes/own", str(other.source), **limits)
        assert tried.error.reason is Reason.RESOURCE_LIMIT_EXCEEDED
        assert (own.path / "kept").read_text() == "kept"
        assert own.used_bytes() <= MIB
        assert [path.name for path in other.path.iterdir()] == ["secret"]
    finally:
        scratch.close()


async def test_setuid_programs_give_no_privileges(sandbox: Sandbox) -> None:
    code = """
import os, stat, subprocess, sys
status = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)
assert not os.getuid() == 0 and not int(status['CapEff'], 16)
for act in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0])):
    try: act()
    except OSError: continue
    if os.getuid() == 0 or os.getgid() == 0: print('escaped')
for folder in ('/usr/bin', '/usr/sbin'):
    for entry in os.scandir(folder):
        if entry.is_file() and entry.stat().st_mode & stat.S_ISUID and entry.name in ('su', 'sudo'):
            options = ['-c', 'echo escaped'] if entry.name == 'su' else ['-n', 'echo', 'escaped']
            done = subprocess.run([entry.path, *options], capture_output=True)
            sys.stdout.buffer.write(done.stdout)
sys.exit(3)
"""
    assert (await try_to(sandbox, code)).report.code == 3


async def test_a_setuid_bit_has_no_effect(sandbox: Sandbox) -> None:
    # The interpreter is the only program that every place has.
    code = """
import os, shutil, subprocess, sys
shutil.copy(sys.executable, '/tmp/copy'); os.chmod('/tmp/copy', 0o6755)
words = ['/tmp/copy', '-I', '-S', '-c', 'import os; print("ids", os.geteuid(), os.getegid())']
done = subprocess.run(words, env={'PYTHONHOME': sys.base_prefix}, capture_output=True, text=True)
assert done.stdout.startswith('ids'), done.stderr
if '0' in done.stdout.split(): print('escaped')
sys.exit(3)
"""
    assert (await try_to(sandbox, code)).report.code == 3


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("/proc/sysrq-trigger", "w"),
        ("/proc/sys/kernel/core_pattern", "w"),
        ("/proc/sys/kernel/hostname", "w"),
        ("/proc/sys/vm/overcommit_memory", "w"),
        ("/proc/1/mem", "r+b"),
        ("/proc/1/root/etc/shadow", "r"),
        ("/proc/1/cwd/etc/shadow", "r"),
        ("/proc/self/root/etc/shadow", "r"),
        ("/proc/kcore", "rb"),
        ("/dev/mem", "rb"),
        ("/dev/kmsg", "rb"),
        ("/dev/vda", "rb"),
        ("/dev/sda", "rb"),
    ],
)
async def test_dangerous_proc_and_dev_files_are_closed(sandbox: Sandbox, path: str, mode: str) -> None:
    code = (
        "import sys; file = open(sys.argv[1], sys.argv[2]); "
        "file.write('1') if 'w' in sys.argv[2] else file.read(1)\nif '+' in sys.argv[2]: file.write(b'1')"
    )
    assert (await try_to(sandbox, code, path, mode)).error.reason is Reason.EXECUTION_FAILED


async def test_the_executors_environment_is_not_visible(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLMESH_SECRET", "escaped")
    code = (
        "import os, sys\nfor pid in os.listdir('/proc'):\n"
        " if pid.isdigit(): sys.stdout.buffer.write(open(f'/proc/{pid}/environ', 'rb').read())\n"
        "sys.exit(3)"
    )
    plan = Plan(python(code).argv, environment={"SEEN": "yes"}, memory_bytes=128 * MIB)
    tried = await attempt(sandbox, plan)
    assert b"SEEN=yes" in tried.output
    assert ESCAPED not in tried.output
    assert b"TOOLMESH" not in tried.output
    assert b"/root/" not in tried.output.replace(b"PYTHON", b"")


async def test_no_executor_file_is_open(sandbox: Sandbox) -> None:
    code = (
        "import os, sys\nfor fd in os.listdir('/proc/self/fd'):\n"
        " try: print(fd, os.readlink(f'/proc/self/fd/{fd}'))\n except OSError: continue"
    )
    tried = await attempt(sandbox, python(code))
    assert [
        line for line in tried.output.decode().splitlines() if int(line.split()[0]) > 2 and "/proc" not in line
    ] == []


@pytest.mark.parametrize(
    "request_", [0x5412, 0x541C, 0x5412 | 1 << 32], ids=["input", "console", "hidden in the upper half"]
)
async def test_terminal_input_cannot_be_injected(sandbox: Sandbox, request_: int) -> None:
    number = (16, 29)[MACHINE]
    code = f"{CALL}\nimport pty\na, b = pty.openpty()\ncall({number}, b, {request_}, ctypes.c_char_p(b'x'))"
    assert (await try_to(sandbox, code)).error.reason is Reason.EXECUTION_FAILED


@pytest.mark.skipif(MACHINE != 0, reason="only x86_64 has a second set of numbers")
async def test_x32_calls_are_closed(sandbox: Sandbox) -> None:
    tried = await try_to(sandbox, f"{CALL}\ncall(0x40000000 | 39)")
    assert tried.error.reason in (Reason.EXECUTION_FAILED, Reason.TOOL_CRASHED)
