"""What all of one executor's processes in gVisor share: its program, a folder, control groups, and the view of the machine."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from services.executor.adapters.sandbox.gvisor.oci_bundle import write_bundle
from services.executor.adapters.sandbox.gvisor.runsc import HOW_TO_GET, PLATFORMS, Runsc, find_runsc
from services.executor.adapters.sandbox.launcher.cgroup import Cgroup
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupHierarchy
from services.executor.adapters.sandbox.port import EnvironmentUnavailableError, Plan
from services.executor.adapters.sandbox.rootfs import NOBODY, RootfsLayout, build_rootfs, interpreter_path
from services.executor.adapters.sandbox.scratch.locked_tempdir import LockedTempDir

OVERHEAD_BYTES = 64 << 20
"""What gVisor needs beside the process inside."""
_OWN_THREADS, _THREADS_EACH = 512, 4
_ROOT = Path(__file__).resolve().parents[5]
_MAIN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from services.executor.adapters.sandbox.gvisor.enter import main; main()"
_PATIENCE = 20.0
_CONFINED = """
import os, socket, sys
assert not os.path.exists("/etc/shadow") and not os.access("/", os.W_OK)
open("/tmp/probe", "w").close()
try:
    socket.create_connection(("192.0.2.1", 9), timeout=5)
except OSError:
    sys.exit(0)
sys.exit("the network is within reach")
"""


@dataclass(frozen=True, slots=True)
class PreparedContainer:
    """One process that is about to be started: its bundle, its control group, and the command that starts it."""

    folder: Path
    group: Cgroup | None
    command: list[str]

    def discard(self) -> None:
        """Give everything back."""
        if self.group is not None:
            self.group.kill()
            self.group.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class GvisorEnvironment:
    """What was prepared, to be given back at the end."""

    runsc: Runsc
    folder: LockedTempDir
    hierarchy: CgroupHierarchy
    view: RootfsLayout

    def prepared(self, plan: Plan) -> PreparedContainer:
        """Prepare one process. Raises OSError or ValueError when it could not be as planned; then nothing is left behind."""
        folder = self.folder.path / f"t{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        group = None
        try:
            group = self._group(folder.name, plan)
            limited = group is not None and "memory" in group.controllers
            write_bundle(folder, plan, self.view, user=_inner_user(plan), memory_limited=limited)
        except (OSError, ValueError):
            PreparedContainer(folder, group, []).discard()
            raise
        wanted = {
            "parent": os.getpid(),
            "folders": group.folders if group is not None else [],
            "log": str(folder / "log"),
            "command": self.runsc.command(folder, egress=bool(plan.egress_socket)),
        }
        return PreparedContainer(
            folder, group, [sys.executable, "-I", "-S", "-c", _MAIN, str(_ROOT), json.dumps(wanted)]
        )

    def close(self) -> None:
        """Give everything back."""
        self.hierarchy.close()
        self.folder.remove()

    def _group(self, name: str, plan: Plan) -> Cgroup | None:
        if not self.hierarchy.parents:
            return None
        return Cgroup.create(
            self.hierarchy.parents,
            name,
            memory=plan.memory_bytes + OVERHEAD_BYTES,
            processes=plan.processes * _THREADS_EACH + _OWN_THREADS,
            millicpus=plan.millicpus,
        )


def prepare_environment(instance: str, cgroups: str, named: Path | None) -> GvisorEnvironment:
    """Prepare what processes in gVisor need, and run one to see that it is confined. Raises StageMissingError."""
    program = find_runsc(named)
    if program is None:
        raise EnvironmentUnavailableError(HOW_TO_GET)
    folder = LockedTempDir("gvisor", within=Path("/run") if os.geteuid() == 0 and os.access("/run", os.W_OK) else None)
    hierarchy = CgroupHierarchy.prepare(instance) if cgroups != "off" else CgroupHierarchy({}, [])
    try:
        view = build_rootfs(folder.path)
        if cgroups == "required" and hierarchy.missing:
            lacking = ", ".join(sorted(hierarchy.missing))
            raise EnvironmentUnavailableError(
                f"no control groups can be made here that limit {lacking}, and they are required"
            )
        return _first_that_works(
            [GvisorEnvironment(Runsc(program, each), folder, hierarchy, view) for each in PLATFORMS]
        )
    except BaseException:
        hierarchy.close()
        folder.remove()
        raise


def chown_writable(plan: Plan) -> None:
    """As root, give what may be changed to the user who may change it. Links are given, never followed."""
    if os.geteuid() != 0:
        return
    for host, _ in plan.writable:
        os.lchown(host, NOBODY, NOBODY)
        for folder, folders, files in os.walk(host):
            for name in (*folders, *files):
                os.lchown(Path(folder) / name, NOBODY, NOBODY)


def _inner_user(plan: Plan) -> int:
    """Who the process is inside. What anyone but root shows it to write belongs to 0 there: a user without any privilege who is
    called so because gVisor, run by an ordinary user, knows one user only."""
    return 0 if plan.writable and os.geteuid() != 0 else NOBODY


def _first_that_works(candidates: list[GvisorEnvironment]) -> GvisorEnvironment:
    why = ""
    for environment in candidates:
        why = _probe(environment)
        if not why:
            return environment
    raise EnvironmentUnavailableError(f"no process could be confined by gVisor: {why}")


def _probe(environment: GvisorEnvironment) -> str:
    """Start a process that looks whether it is confined; return why it could not be, or nothing."""
    try:
        prepared = environment.prepared(Plan((interpreter_path(), "-I", "-S", "-c", _CONFINED)))
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    try:
        done = subprocess.run(
            prepared.command,
            # A pipe: runsc makes whatever it is given as standard input its container's own, /dev/null of the host included.
            input=b"",
            capture_output=True,
            env={},
            cwd="/",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    finally:
        with suppress(OSError):
            prepared.discard()
    said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
    return "" if done.returncode == 0 else said or f"it ended with {done.returncode}"
