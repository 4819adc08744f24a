"""Prepares a new process and replaces it with `runsc`: parent-death signal, cgroups, limits and mount namespace.

Runs as a program with a JSON object as its first argument: `cgroups` and `mount_namespace` to enter and the `command`
to execute. Further arguments are the descriptors that the command gets, from 3 on. It dies with the executor, and
gVisor's own processes die with it. Like the launcher, it loads the standard library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import sys

from services.executor.adapters.sandbox.launcher import syscalls

FATAL = 128
"""Exit code of `runsc` for its own failures."""
_OPEN_FILES = 8192
_FIRST_FREE = 10
_PR_SET_PDEATHSIG = 1
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ)


def main() -> None:
    """Prepare this process, then execute the command. An error is written to gVisor's log file."""
    request = json.loads(sys.argv[1])
    try:
        _prepare(request["parent"], request["cgroups"])
        _pass_descriptors([int(number) for number in sys.argv[2:]])
        if request["mount_namespace"]:
            syscalls.join_mount_namespace(request["mount_namespace"])
        if os.geteuid() == 0:
            # gVisor mounts its network namespace on a file and leaves it there when it is killed. An ordinary user's
            # gVisor makes a mount namespace itself.
            syscalls.unshare_mounts()
        os.execve(request["command"][0], request["command"], {})  # noqa: S606
    except OSError as error:
        with open(request["log"], "w") as log:  # noqa: PTH123
            log.write(json.dumps({"level": "error", "msg": f"{type(error).__name__}: {error}"}, separators=(",", ":")))
        os._exit(FATAL)


def _pass_descriptors(descriptors: list[int]) -> None:
    # First out of the way: a source may have the number of another's target.
    raised = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for target, descriptor in enumerate(raised, start=3):
        os.dup2(descriptor, target)


def _prepare(parent: int, cgroups: list[str]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    # The parent may have ended before the signal was set.
    if os.getppid() != parent:
        os._exit(FATAL)
    for path in cgroups:
        with open(f"{path}/cgroup.procs", "w") as members:  # noqa: PTH123
            members.write("0")
    for number in _DEFAULT_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # gVisor opens a host file for every file that is open inside.
    ceiling = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    allowed = _OPEN_FILES if ceiling == resource.RLIM_INFINITY else min(_OPEN_FILES, ceiling)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    os.umask(0o022)
    os.chdir("/")
