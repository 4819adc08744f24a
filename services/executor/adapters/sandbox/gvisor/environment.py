"""The resources that all gVisor containers of one executor share: runsc, directory, cgroups and root file system."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from services.executor.adapters.sandbox.gvisor.named_pipes import open_named_pipes, with_named_pipes
from services.executor.adapters.sandbox.gvisor.oci_bundle import write_bundle
from services.executor.adapters.sandbox.gvisor.runsc import (
    HOW_TO_GET,
    PLATFORMS,
    Runsc,
    find_runsc,
    passes_descriptors,
)
from services.executor.adapters.sandbox.host_checks import INSIDE_GVISOR, explain, runs_inside_gvisor
from services.executor.adapters.sandbox.launcher.cgroup import Cgroup
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupHierarchy, CgroupPolicy
from services.executor.adapters.sandbox.pipes import open_pipes
from services.executor.adapters.sandbox.port import (
    EVENTS_DESCRIPTOR,
    INPUT_DESCRIPTOR,
    EnvironmentUnavailableError,
    Plan,
)
from services.executor.adapters.sandbox.rootfs import NOBODY, RootfsLayout, build_rootfs, interpreter_path
from services.executor.adapters.sandbox.scratch.locked_tempdir import LockedTempDir

OVERHEAD_BYTES = 64 << 20
"""Memory of gVisor itself, in addition to the limit of the plan."""
_GVISOR_THREADS, _THREADS_PER_PROCESS = 512, 4
_ROOT = Path(__file__).resolve().parents[5]
_MAIN = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from services.executor.adapters.sandbox.gvisor.enter import main; main()"
)
_PROBE_SECONDS = 20.0
_PROBE_CODE = """
import os, socket, sys
assert not os.path.exists("/etc/shadow") and not os.access("/", os.W_OK)
open("/tmp/probe", "w").close()
try:
    socket.create_connection(("192.0.2.1", 9), timeout=5)
except OSError:
    sys.exit(0)
sys.exit("the network is reachable")
"""


@dataclass(frozen=True, slots=True)
class PreparedContainer:
    """A container ready to start: its bundle, its cgroup, and the commands that start and terminate it."""

    folder: Path
    group: Cgroup | None
    command: list[str]
    terminate: list[str]
    named_pipes: bool = False
    """True if named pipes in the folder are its pipes of events and input."""

    def open_event_pipes(self) -> list[tuple[int, int]]:
        """Open the pipes of events and input, each as (read end, write end). Raises OSError."""
        return open_named_pipes(self.folder) if self.named_pipes else open_pipes(2)

    def discard(self) -> None:
        """Kill its processes and remove the cgroup and the bundle."""
        if self.group is not None:
            self.group.kill()
            self.group.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class GvisorEnvironment:
    """Prepared resources; `close` releases them."""

    runsc: Runsc
    folder: LockedTempDir
    hierarchy: CgroupHierarchy
    rootfs: RootfsLayout

    def prepare_container(self, plan: Plan) -> PreparedContainer:
        """Create the cgroup and bundle of one container. On OSError or ValueError nothing is left behind."""
        folder = self.folder.path / f"t{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        group = None
        try:
            group = self._create_cgroup(folder.name, plan)
            limited = group is not None and "memory" in group.controllers
            named_pipes = plan.has_events and not self.runsc.passes_descriptors
            shown = with_named_pipes(plan, folder) if named_pipes else plan
            write_bundle(folder, shown, self.rootfs, user=_inner_user(plan), memory_limited=limited)
        except (OSError, ValueError):
            PreparedContainer(folder, group, [], []).discard()
            raise
        request = {
            "parent": os.getpid(),
            "cgroups": group.paths if group is not None else [],
            "mount_namespace": plan.mount_namespace,
            "log": str(folder / "log"),
            "command": self.runsc.command(
                folder,
                egress=bool(plan.egress_socket),
                descriptors=(EVENTS_DESCRIPTOR, INPUT_DESCRIPTOR) if plan.has_events else (),
            ),
        }
        command = [sys.executable, "-I", "-S", "-c", _MAIN, str(_ROOT), json.dumps(request)]
        return PreparedContainer(folder, group, command, self.runsc.terminate_command(folder), named_pipes)

    def close(self) -> None:
        """Remove the cgroups and the directory."""
        self.hierarchy.close()
        self.folder.remove()

    def _create_cgroup(self, name: str, plan: Plan) -> Cgroup | None:
        if not self.hierarchy.parents:
            return None
        return Cgroup.create(
            self.hierarchy.parents,
            name,
            memory=plan.memory_bytes + OVERHEAD_BYTES,
            processes=plan.processes * _THREADS_PER_PROCESS + _GVISOR_THREADS,
            millicpus=plan.millicpus,
        )


def prepare_environment(
    instance: str, cgroups: CgroupPolicy, runsc: Path | None, folders: Sequence[Path] = ()
) -> GvisorEnvironment:
    """Prepare the environment and probe it with one container; containers show further `folders`. Raises
    EnvironmentUnavailableError."""
    if runs_inside_gvisor():
        raise EnvironmentUnavailableError(INSIDE_GVISOR)
    program = find_runsc(runsc)
    if program is None:
        raise EnvironmentUnavailableError(HOW_TO_GET)
    try:
        passing = passes_descriptors(program)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentUnavailableError(f"{program} does not run: {type(error).__name__}") from error
    folder = LockedTempDir("gvisor", within=Path("/run") if os.geteuid() == 0 and os.access("/run", os.W_OK) else None)
    hierarchy = CgroupHierarchy.for_policy(instance, cgroups)
    try:
        rootfs = build_rootfs(folder.path, folders)
        if cgroups.mode == "required" and hierarchy.missing:
            lacking = ", ".join(sorted(hierarchy.missing))
            raise EnvironmentUnavailableError(
                f"cgroups are required, but this process cannot create cgroups that limit {lacking}"
            )
        return _first_working(
            [GvisorEnvironment(Runsc(program, platform, passing), folder, hierarchy, rootfs) for platform in PLATFORMS]
        )
    except BaseException:
        hierarchy.close()
        folder.remove()
        raise


def chown_writable(plan: Plan) -> None:
    """As root, make the sandbox user the owner of writable mounts. Symbolic links are never followed."""
    if os.geteuid() != 0:
        return
    for host in (plan.reachable(host) for host, _ in plan.writable):
        os.lchown(host, NOBODY, NOBODY)
        for folder, folders, files in os.walk(host):
            for name in (*folders, *files):
                os.lchown(Path(folder) / name, NOBODY, NOBODY)


def _inner_user(plan: Plan) -> int:
    """Return the user id inside. Rootless gVisor maps the executor's user to 0, without privileges, so a process with
    writable mounts runs as 0 there."""
    return 0 if plan.writable and os.geteuid() != 0 else NOBODY


def _first_working(candidates: list[GvisorEnvironment]) -> GvisorEnvironment:
    reason = ""
    for environment in candidates:
        reason = _probe(environment)
        if not reason:
            return environment
    raise EnvironmentUnavailableError(explain(f"the gVisor probe failed: {reason}"))


def _probe(environment: GvisorEnvironment) -> str:
    """Run a process that checks its own confinement; return why it failed, or an empty string."""
    try:
        prepared = environment.prepare_container(Plan((interpreter_path(), "-I", "-S", "-c", _PROBE_CODE)))
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    try:
        completed = subprocess.run(
            prepared.command,
            # A pipe, because runsc changes the owner of its standard input, even if that is the host's /dev/null.
            input=b"",
            capture_output=True,
            env={},
            cwd="/",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    finally:
        with suppress(OSError):
            prepared.discard()
    message = completed.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
    return "" if completed.returncode == 0 else message or f"exit code {completed.returncode}"
