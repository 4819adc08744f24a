"""The sandbox of pods: each process runs in a pod of its own, on whichever node the cluster chooses.

A pod reaches nothing: its namespace denies all traffic, and a filter refuses sockets to a tool without hosts. The
executor reaches it by `exec` through the API server, so that the pods need no port and no key. Connections of a tool
with hosts are carried over the same connection to the executor's egress proxy.
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from libs.common.runtime.tasks import PeriodicTask
from libs.common.telemetry.log import Log
from services.executor.adapters.sandbox.bounds import Bound, Bounds
from services.executor.adapters.sandbox.pods import inside
from services.executor.adapters.sandbox.pods.ownership import RENEW_SECONDS, PodOwnership
from services.executor.adapters.sandbox.pods.pod_api import ClusterError, ExecSession, PodApi, PodState
from services.executor.adapters.sandbox.pods.pod_manifest import (
    AGENT_FOLDER,
    LOADER,
    TOOL,
    PodConfig,
    describe_pod,
)
from services.executor.adapters.sandbox.pods.pod_process import PodProcess
from services.executor.adapters.sandbox.pods.tool_files import TooLargeError, measure_files, write_archive
from services.executor.adapters.sandbox.port import ExitKind, Plan, SandboxedProcess
from services.executor.adapters.sandbox.rootfs import EGRESS_SOCKET, interpreter_path
from services.executor.adapters.sandbox.seccomp.bpf import compile_filter
from services.executor.domain import errors, run_errors

_BOUNDS = Bounds(Bound.GROUPS, Bound.RLIMITS, cpu_time=Bound.WATCH, cpu_share=Bound.GROUPS, has_volumes=False)
_SWEEP_SECONDS, _POLL_SECONDS, _REMOVE_SECONDS, _PROBE_SECONDS = 30.0, 0.1, 15.0, 120.0
_HOPELESS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
_INSIDE = Path(inside.__file__).parent
_BOOT = f"import sys; sys.path.insert(0, {AGENT_FOLDER!r}); from {_INSIDE.name}.agent import main; main()"
_LOAD = (_INSIDE / "load_files.py").read_text(encoding="utf-8")
_PROBE = """
import os, socket, sys
assert not os.access("/", os.W_OK) and not os.path.exists("/run/secrets/kubernetes.io/serviceaccount/token")
open("/tmp/probe", "w").close()
try:
    socket.create_connection((os.environ["ADDRESS"], int(os.environ["PORT"])), timeout=3)
except OSError:
    sys.exit(0)
sys.exit("the network is reachable")
"""


class PodSandbox:
    """Implements Sandbox with pods. `open` probes it; before that and where the probe failed it cannot be used."""

    def __init__(self, api: PodApi, config: PodConfig, instance: str, log: Log) -> None:
        self._api, self._config, self._log = api, config, log
        self._listeners = list[Callable[[], object]]()
        self._ownership = PodOwnership(api, instance, log)
        self._unavailable = "its pods have not been probed yet"
        self._running = set[PodProcess]()
        self._tasks = set[asyncio.Task[object]]()
        self._probing: asyncio.Task[None] | None = None
        self._renewer = PeriodicTask("tool-pods-lease", self._ownership.renew, log, interval=RENEW_SECONDS)
        self._sweeper = PeriodicTask("tool-pods-sweep", self._sweep, log, interval=_SWEEP_SECONDS)
        self._filters = {loopback: compile_filter(loopback=loopback) for loopback in (False, True)}

    @property
    def name(self) -> str:
        """Return the name that audit records show."""
        return f"machine/pod-{self._config.runtime_class}" if self._config.runtime_class else "machine/pod"

    def unavailable_reason(self) -> str:
        """Return why it cannot be used at present; empty if it can. Never blocks."""
        return self._unavailable

    def bounds(self) -> Bounds | None:
        """Return what keeps the limits of its processes; None while it cannot be used."""
        return None if self._unavailable else _BOUNDS

    def listen(self, listener: Callable[[], object]) -> None:
        """Call the listener when it can be used, or no longer."""
        self._listeners.append(listener)

    async def open(self) -> None:
        """Begin to probe, to show that this executor lives, and to remove what others left. Does not wait for it."""
        self._probing = asyncio.create_task(self.probe(), name="tool-pods-probe")
        await self._renewer.start()
        await self._sweeper.start()

    async def probe(self) -> None:
        """Sweep, start one pod that checks its own confinement, and note whether pods can be used."""
        before = self._unavailable
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await self._ownership.lease()
                await self._ownership.sweep()
                self._unavailable = await self._try_pod()
        except TimeoutError:
            self._unavailable = f"no pod ran in namespace {self._config.namespace} within {_PROBE_SECONDS:g} seconds"
        except Exception as error:
            self._unavailable = f"no pod can be started in namespace {self._config.namespace}: {error}"
        if self._unavailable != before:
            self._log.info("pods of tools", state=self._unavailable or "can be used")
            for listener in self._listeners:
                listener()

    async def start(self, plan: Plan) -> SandboxedProcess:
        """Start a process. Raises SANDBOX_UNAVAILABLE if the plan cannot be enforced in full."""
        if self._unavailable:
            raise errors.sandbox_missing(self.name, self._unavailable)
        return await self._start(plan)

    async def close(self) -> None:
        """Kill running processes, remove their pods and this executor's lease."""
        self._unavailable = "the sandbox is closed"
        for task in (self._renewer, self._sweeper):
            await task.stop()
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})
        running = tuple(self._running)
        await asyncio.gather(*(process.kill() for process in running))
        await asyncio.gather(*(process.removed() for process in running))
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._ownership.release()
        await self._api.close()

    async def _sweep(self) -> None:
        await self._ownership.sweep()
        if self._unavailable:
            await self.probe()

    async def _try_pod(self) -> str:
        """Run a process that checks its own confinement; return why it failed, or an empty string."""
        host, port = await self._api.address()
        environment = {"ADDRESS": host, "PORT": str(port)}
        plan = Plan((interpreter_path(), "-I", "-S", "-c", _PROBE), environment, loopback=True)
        process = await self._start(plan)
        try:
            report = await process.wait()
        finally:
            await process.kill()
        if report.kind is ExitKind.EXITED and report.code == 0:
            return ""
        return f"the probe failed: {report.stderr_tail.strip().rpartition(chr(10))[2][:200] or report.kind}"

    async def _start(self, plan: Plan) -> PodProcess:
        if plan.writable or plan.mount_namespace:
            raise run_errors.sandbox_failed("tools with volumes do not run in pods")
        binds = [*plan.readable, (str(_INSIDE), f"{AGENT_FOLDER}/{_INSIDE.name}")]
        name = f"tool-{secrets.token_hex(8)}"
        creating: asyncio.Future[None] | None = None
        try:
            size = await asyncio.to_thread(measure_files, binds)
            folders = [*(inside for _, inside in plan.readable), AGENT_FOLDER]
            owner = await self._ownership.lease()
            pod = describe_pod(self._config, name, self._ownership.name, owner, plan, folders, size)
            creating = asyncio.ensure_future(self._api.create_pod(pod))
            await asyncio.shield(creating)
            process = await self._start_in(name, plan, binds)
        except BaseException as error:
            if creating is not None:
                self._keep(self._remove_created(name, creating))
            if isinstance(error, (ClusterError, ConnectionError, OSError, TooLargeError)):
                self._log.warning("a pod could not be started", pod=name, cause=error)
                raise run_errors.sandbox_failed("the pod could not be started") from None
            raise
        self._running.add(process)
        self._keep(self._forget(process))
        return process

    async def _start_in(self, name: str, plan: Plan, binds: list[tuple[str, str]]) -> PodProcess:
        await self._until_running(name)
        await self._load(name, binds)
        python = (self._config.python, "-I", "-S", "-B", "-c")
        session = await self._api.execute(name, TOOL, (*python, _BOOT))
        process = PodProcess(plan, session, lambda: self._remove(name))
        await process.begin(self._request(plan))
        return process

    async def _load(self, name: str, binds: list[tuple[str, str]]) -> None:
        """Send the tool's files into the volumes of the pod."""
        session = await self._api.execute(name, LOADER, (self._config.python, "-I", "-S", "-c", _LOAD))
        try:
            await _send_archive(session, binds)
            if await session.receive() != b"loaded":
                raise ClusterError("the files of the tool could not be written")
        finally:
            await session.close()

    async def _until_running(self, name: str) -> None:
        while True:
            state = await self._api.read_pod(name)
            if state is None or state.phase in ("Failed", "Succeeded"):
                raise ClusterError("the pod ended before it was used")
            if all(state.containers.get(each) and state.containers[each].running for each in (TOOL, LOADER)):
                return
            if hopeless := [each.waiting for each in state.containers.values() if each.waiting in _HOPELESS]:
                raise ClusterError(f"a container does not start: {hopeless[0]}")
            await asyncio.sleep(_POLL_SECONDS)

    async def _remove_created(self, name: str, creating: asyncio.Future[None]) -> None:
        # A request cannot be canceled: the pod may be made after its caller left.
        await asyncio.wait({creating})
        if creating.exception() is None:
            await self._remove(name)

    async def _remove(self, name: str) -> bool:
        """Remove a pod and wait until it is gone. Returns whether the kernel ended it for its memory."""
        killed = deleted = False
        with suppress(TimeoutError):
            async with asyncio.timeout(_REMOVE_SECONDS):
                while True:
                    with suppress(ClusterError):
                        if (state := await self._api.read_pod(name)) is None:
                            break
                        killed = killed or _out_of_memory(state)
                        if not deleted:
                            await self._api.delete_pod(name)
                            deleted = True
                    await asyncio.sleep(_POLL_SECONDS)
        return killed

    def _keep(self, coroutine: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forget(self, process: PodProcess) -> None:
        await process.removed()
        self._running.discard(process)

    def _request(self, plan: Plan) -> dict[str, object]:
        own = interpreter_path()
        return {
            "argv": [self._config.python if word == own else word for word in plan.argv],
            "environment": dict(plan.environment),
            "file_bytes": plan.file_bytes,
            "processes": plan.processes,
            "millicpus": plan.millicpus,
            "cpu_seconds": plan.cpu_seconds,
            "events": plan.has_events,
            "egress": EGRESS_SOCKET if plan.egress_socket else "",
            "seccomp": base64.b64encode(self._filters[plan.loopback]).decode(),
        }


def _out_of_memory(state: PodState) -> bool:
    return any(each.ended == "OOMKilled" for each in state.containers.values())


async def _send_archive(session: ExecSession, binds: list[tuple[str, str]]) -> None:
    """Send the archive while a thread packs it."""
    reading, writing = os.pipe2(os.O_CLOEXEC)

    def pack() -> None:
        with os.fdopen(writing, "wb") as target:
            write_archive(binds, target)

    packing = asyncio.ensure_future(asyncio.to_thread(pack))
    try:
        with os.fdopen(reading, "rb", 0) as source:
            while chunk := await asyncio.to_thread(source.read, 64 << 10):
                await session.send(chunk)
    finally:
        await asyncio.wait({packing})
    packing.result()
