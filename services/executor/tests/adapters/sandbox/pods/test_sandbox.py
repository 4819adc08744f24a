"""The sandbox of pods, through the real client and agent. What only a node keeps is tested by tests/cluster."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.sandbox.bounds import Bound
from services.executor.adapters.sandbox.pods import sandbox as module
from services.executor.adapters.sandbox.pods.kubernetes_api import KubernetesPodApi
from services.executor.adapters.sandbox.pods.sandbox import PodSandbox
from services.executor.adapters.sandbox.port import ExitKind, Plan
from services.executor.domain.tool import Limit
from services.executor.tests.adapters.sandbox.pods.conftest import CONFIG
from services.executor.tests.pod_cluster import NAMESPACE, PodCluster
from services.executor.tests.sandboxes import attempt, processes_with, python
from services.executor.tests.waiting import until


def _state(pid: int) -> str:
    """Return the state of a process, such as T for a stopped one."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


async def test_a_process_reads_stdin_and_writes_stdout(pods: PodSandbox) -> None:
    process = await pods.start(Plan(("/bin/cat",)))
    for word in (b"one", b"two" * 300_000):
        process.stdin.write(word)
        assert await process.stdout.readexactly(len(word)) == word
    process.stdin.close()
    assert await process.stdout.read() == b""
    assert (await process.wait()).kind is ExitKind.EXITED
    assert (await process.kill()).kind is ExitKind.EXITED


async def test_exit_report_has_code_and_stderr(pods: PodSandbox) -> None:
    tried = await attempt(pods, python("import sys; sys.exit('told on standard error')"))
    assert (tried.report.kind, tried.report.code) == (ExitKind.EXITED, 1)
    assert tried.report.stderr_tail == "told on standard error\n"


async def test_a_signal_is_reported_as_a_crash(pods: PodSandbox) -> None:
    tried = await attempt(pods, python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))
    assert (tried.report.kind, tried.report.code) == (ExitKind.CRASHED, 11)


async def test_a_missing_program_exits_with_127(pods: PodSandbox) -> None:
    tried = await attempt(pods, Plan(("/usr/bin/not-there",)))
    assert (tried.report.kind, tried.report.code) == (ExitKind.EXITED, 127)


async def test_process_environment_is_that_of_the_plan(pods: PodSandbox) -> None:
    tried = await attempt(pods, Plan(("/usr/bin/env",), environment={"A": "1", "PATH": "/x"}))
    assert sorted(tried.output.decode().split()) == ["A=1", "PATH=/x"]


async def test_files_of_the_plan_are_there_and_cannot_be_changed(pods: PodSandbox, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "script").write_text("content")
    code = "import os; print(open('/packs/one/below/script').read()); open('/packs/one/new', 'w')"
    tried = await attempt(pods, python(code, readable=((str(tmp_path), "/packs/one"),)))
    assert tried.output == b"content\n"
    assert "Read-only file system" in tried.report.stderr_tail


async def test_events_and_input_are_carried(pods: PodSandbox) -> None:
    code = "import os\nwhile line := os.read(4, 100): os.write(3, line.upper())"
    process = await pods.start(python(code, has_events=True))
    assert process.event_pipes is not None
    process.event_pipes.input.write(b"hello")
    assert await process.event_pipes.events.readexactly(5) == b"HELLO"
    process.event_pipes.input.close()
    assert (await process.wait()).code == 0


async def test_output_that_is_not_read_delays_neither_events_nor_the_end(pods: PodSandbox) -> None:
    code = "import os; os.write(3, b'event'); os.write(1, b'x' * 200_000)"
    process = await pods.start(python(code, has_events=True))
    assert process.event_pipes is not None
    assert await process.event_pipes.events.read() == b"event"
    assert (await process.wait()).kind is ExitKind.EXITED
    assert len(await process.stdout.read()) == 200_000


async def test_a_reader_that_leaves_breaks_the_pipe(pods: PodSandbox) -> None:
    process = await pods.start(python("import os, time; os.close(0); print('closed', flush=True); time.sleep(1000)"))
    assert await process.stdout.readline() == b"closed\n"
    with pytest.raises(ConnectionError):
        while True:
            process.stdin.write(b"x" * 1000)
            await process.stdin.drain()
    await process.kill()


async def test_kill_ends_children_that_ignore_signals(pods: PodSandbox, cluster: PodCluster) -> None:
    code = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork() or os.setsid()
print("up", flush=True)
time.sleep(1000)
"""
    process = await pods.start(python(code))
    assert await process.stdout.readline() == b"up\n"
    assert (await process.kill()).kind is ExitKind.KILLED
    await until(lambda: not cluster.pods)


async def test_terminate_reaches_the_process(pods: PodSandbox) -> None:
    code = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print(1, flush=True)"
    process = await pods.start(python(f"{code}; time.sleep(1000)"))
    await process.stdout.readline()
    await process.terminate()
    assert (await process.wait()).code == 7


async def test_a_pod_whose_agent_does_not_obey_is_removed(pods: PodSandbox, cluster: PodCluster) -> None:
    """The tool stops the agent, which is a process of the same user."""
    code = """
import os, signal, time
for entry in os.listdir("/proc"):
    if entry.isdigit() and int(entry) not in (1, os.getpid()):
        os.kill(int(entry), signal.SIGSTOP)
time.sleep(1000)
"""
    process = await pods.start(python(code))
    await until(lambda: any("T" in _state(pid) for pid in processes_with("from inside.agent")))
    assert (await process.kill()).kind is ExitKind.KILLED
    assert cluster.pods == {}


async def test_a_tool_that_kills_its_agent_ends_with_its_pod(pods: PodSandbox, cluster: PodCluster) -> None:
    code = "import os, signal; os.kill(-1, signal.SIGKILL); print('alone')"
    process = await pods.start(python(code))
    assert (await process.wait()).kind is ExitKind.CRASHED
    assert cluster.pods == {}


async def test_a_tool_ends_when_one_of_its_processes_was_killed_for_memory(
    pods: PodSandbox, cluster: PodCluster
) -> None:
    """Without that, its other processes may wait for that one without end."""
    cluster.counts_kills = True
    process = await pods.start(python("import os, time; os.write(1, b'ready'); time.sleep(1000)"))
    assert await process.stdout.readexactly(5) == b"ready"
    [pod] = cluster.pods.values()
    pod.count_kills(1)
    assert (await process.wait()).kind is ExitKind.OUT_OF_MEMORY
    await process.kill()


@pytest.mark.parametrize(("reason", "kind"), [("OOMKilled", ExitKind.OUT_OF_MEMORY), ("", ExitKind.CRASHED)])
async def test_a_pod_that_the_node_ended_is_reported(
    pods: PodSandbox, cluster: PodCluster, reason: str, kind: ExitKind
) -> None:
    process = await pods.start(python("import time; time.sleep(1000)"))
    next(iter(cluster.pods.values())).kill(reason)
    assert (await process.wait()).kind is kind
    await process.kill()


async def test_limits_reach_the_process(pods: PodSandbox) -> None:
    code = "import resource as r; print(*(r.getrlimit(w)[1] for w in (r.RLIMIT_NPROC, r.RLIMIT_FSIZE, r.RLIMIT_CORE)))"
    tried = await attempt(pods, python(code, processes=30, file_bytes=4096))
    assert tried.output.split() == [b"32", b"4096", b"0"]


async def test_work_ends_at_the_cpu_limit(pods: PodSandbox) -> None:
    assert (await attempt(pods, python("while True: pass", cpu_seconds=1))).report.kind is ExitKind.CPU_LIMIT


async def test_forbidden_calls_end_the_process(pods: PodSandbox) -> None:
    tried = await attempt(pods, python("import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)"))
    assert tried.report.kind is ExitKind.FORBIDDEN_CALL


@pytest.mark.parametrize(("loopback", "code"), [(False, 1), (True, 0)])
async def test_tcp_sockets_need_hosts(pods: PodSandbox, loopback: bool, code: int) -> None:
    plan = python("import socket; socket.socket()", loopback=loopback)
    assert (await attempt(pods, plan)).report.code == code


async def test_connections_are_carried_to_the_egress_proxy(pods: PodSandbox, tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    proxy = str(tmp_path / "proxy")
    async with await asyncio.start_unix_server(answer, proxy):
        code = """
import socket
for word in (b"one\\n", b"two\\n"):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("/run/egress.sock")
        connection.sendall(word)
        print(connection.makefile().read(), end="")
"""
        tried = await attempt(pods, python(code, egress_socket=proxy, loopback=True))
    assert tried.output == b"ONE\nTWO\n"


async def test_tools_with_volumes_are_refused(pods: PodSandbox, cluster: PodCluster, tmp_path: Path) -> None:
    with pytest.raises(MeshError) as caught:
        await pods.start(python("", writable=((str(tmp_path), "/volumes/one"),)))
    assert caught.value.reason is Reason.SANDBOX_UNAVAILABLE
    assert cluster.created == []


async def test_a_refused_pod_is_sandbox_unavailable(pods: PodSandbox, cluster: PodCluster) -> None:
    cluster.refused = "exceeded quota"
    with pytest.raises(MeshError) as caught:
        await pods.start(python(""))
    assert caught.value.reason is Reason.SANDBOX_UNAVAILABLE


async def test_a_start_whose_caller_left_leaves_no_pod(pods: PodSandbox, cluster: PodCluster) -> None:
    starting = asyncio.create_task(pods.start(python("")))
    await until(lambda: cluster.created)
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    await until(lambda: not cluster.pods)


async def test_it_says_what_keeps_limits_once_it_was_probed(cluster: PodCluster, quiet: Log) -> None:
    made = PodSandbox(KubernetesPodApi(NAMESPACE, cluster.kubeconfig), CONFIG, "other", quiet)
    changes = list[str]()
    made.listen(lambda: changes.append(made.unavailable_reason()))
    assert made.bounds() is None
    await made.open()
    await until(lambda: changes)
    bounds = made.bounds()
    assert bounds is not None
    assert (bounds.memory, bounds.unkept(), changes) == (Bound.GROUPS, frozenset({Limit.VOLUMES}), [""])
    await made.close()
    assert made.unavailable_reason()


async def test_it_cannot_be_used_where_pods_are_refused(cluster: PodCluster, quiet: Log) -> None:
    cluster.refused = "violates PodSecurity"
    made = PodSandbox(KubernetesPodApi(NAMESPACE, cluster.kubeconfig), CONFIG, "other", quiet)
    await made.probe()
    assert made.unavailable_reason()
    with pytest.raises(MeshError):
        await made.start(python(""))
    await made.close()


async def test_it_cannot_be_used_where_a_pod_reaches_the_network(
    cluster: PodCluster, quiet: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener inside of the pod stands for what no policy keeps from it."""
    listen = "import socket; s = socket.create_server(('127.0.0.1', 1))\n"
    monkeypatch.setattr(module, "_PROBE", listen.replace("127.0.0.1', 1", "127.0.0.1', 9999") + module._PROBE)

    class Reachable(KubernetesPodApi):
        async def address(self) -> tuple[str, int]:
            return "127.0.0.1", 9999

    made = PodSandbox(Reachable(NAMESPACE, cluster.kubeconfig), CONFIG, "other", quiet)
    await made.probe()
    assert "network" in made.unavailable_reason()
    await made.close()


async def test_it_cannot_be_used_without_a_cluster(tmp_path: Path, quiet: Log) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        kubeconfig = tmp_path / "kubeconfig"
        made = PodSandbox(KubernetesPodApi(NAMESPACE, kubeconfig), CONFIG, "other", quiet)
        await made.probe()
    assert made.unavailable_reason()
    await made.close()
