"""From a process of the executor to gVisor: what a new process does to itself before it becomes `runsc`. Standard library only.

Run as a program, with a JSON object as its only argument: `folders` of control groups to enter, `command` to become. It ends when the
executor does, however that ends, and gVisor's own processes end when it does.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys

FATAL = 128
"""What gVisor itself ends with when it cannot go on."""
_OPEN_FILES = 8192
_PARENT_DEATH_SIGNAL = 1
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ)


def main() -> None:
    """Bind this process to its parent and its limits, then become the command. What fails is written to the log that gVisor writes to."""
    wanted = json.loads(sys.argv[1])
    try:
        _bind(wanted["parent"], wanted["folders"])
        os.execve(wanted["command"][0], wanted["command"], {})  # noqa: S606
    except OSError as error:
        with open(wanted["log"], "w") as log:  # noqa: PTH123
            log.write(json.dumps({"level": "error", "msg": f"{type(error).__name__}: {error}"}, separators=(",", ":")))
        os._exit(FATAL)


def _bind(parent: int, folders: list[str]) -> None:
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
    # It may have ended before that was asked for.
    if os.getppid() != parent:
        os._exit(FATAL)
    for folder in folders:
        with open(f"{folder}/cgroup.procs", "w") as members:  # noqa: PTH123
            members.write("0")
    for number in _DEFAULT_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # gVisor holds a file of its own for every file inside.
    ceiling = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    allowed = _OPEN_FILES if ceiling == resource.RLIM_INFINITY else min(_OPEN_FILES, ceiling)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    os.umask(0o022)
    os.chdir("/")
