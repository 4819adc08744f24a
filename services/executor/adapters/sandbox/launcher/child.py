"""From the launcher to bubblewrap: what a forked process does to itself before it becomes the sandbox. Standard library only.

Whatever fails here, the process ends without running anything, and says on its status pipe which step it was.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
from contextlib import suppress
from typing import Any, NamedTuple

from services.executor.adapters.sandbox.launcher import bwrap_argv, rlimits, syscalls
from services.executor.adapters.sandbox.launcher.cgroup import Cgroup

FAILED = 125
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


class ChildDescriptors(NamedTuple):
    """The ends of pipes that the sandbox gets."""

    stdin: int
    stdout: int
    stderr: int
    status: int
    block: int
    """Bubblewrap waits here until it has been bound to its limits from outside; -1 if it need not."""
    program: int
    """The filter of system calls."""


def exec_bwrap(
    config: dict[str, Any], plan: dict[str, Any], user: int, group: Cgroup | None, ends: ChildDescriptors
) -> None:
    """Turn this process into bubblewrap; never returns. `user` is the host user it runs as, 0 for whoever runs it now."""
    try:
        _exec_bwrap(config, plan, user, group, ends)
    except BaseException as error:
        with suppress(OSError):
            os.write(ends.status, json.dumps({"failed": f"{type(error).__name__}: {error}"[:500]}).encode() + b"\n")
    finally:
        os._exit(FAILED)


def _exec_bwrap(
    config: dict[str, Any], plan: dict[str, Any], user: int, group: Cgroup | None, ends: ChildDescriptors
) -> None:
    if group is not None:
        group.add(0)
    program, places = config["bwrap"], {}
    if user:
        places = _stage(config, plan, user)
        program = program.replace(config["bwrap_home"], places[config["bwrap_home"]], 1)
    descriptors = {"--json-status-fd": ends.status, "--seccomp": _afresh(ends.program)}
    if ends.block >= 0:
        descriptors["--block-fd"] = ends.block
    told = _spoken(bwrap_argv.build_options(config, plan, lambda host: places.get(host, host), descriptors))
    _arrange((ends.stdin, ends.stdout, ends.stderr), {told, *descriptors.values()}, user)
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    for number in _DEFAULT_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    grouped = group.controllers if group is not None else frozenset()
    processes = "pids" not in grouped and ends.block < 0
    rlimits.apply_limits(rlimits.process_limits(plan, memory="memory" not in grouped, processes=processes))
    os.chdir("/")
    os.execve(program, [program, "--args", str(told), "--", *plan["argv"]], {})  # noqa: S606


def _stage(config: dict[str, Any], plan: dict[str, Any], user: int) -> dict[str, str]:
    """Show everything that the sandbox will show in one place that its user can reach, whoever's homes the originals lie in."""
    syscalls.unshare_mounts()
    syscalls.mount_tmpfs(config["stage"])
    places = {}
    for number, host in enumerate((*bwrap_argv.bind_sources(config, plan), config["bwrap_home"])):
        place = f"{config['stage']}/{number}"
        if os.path.isdir(host):  # noqa: PTH112
            os.mkdir(place)  # noqa: PTH102
        else:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        syscalls.bind_mount(host, place)
        places[host] = place
    for host, _ in plan["writable"]:
        _hand_over(host, user)
    if plan["egress_socket"]:
        os.chown(plan["egress_socket"], user, user)
    return places


def _hand_over(path: str, user: int) -> None:
    """Give what may be changed to who may change it. Links are given, never followed."""
    os.lchown(path, user, user)
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            os.lchown(os.path.join(folder, name), user, user)  # noqa: PTH118


def _arrange(standard: tuple[int, int, int], kept: set[int], user: int) -> None:
    """Put the standard streams in place, keep what bubblewrap is told of, close the rest."""
    if user:
        # Programs open /dev/stdin and /dev/stdout by name, which asks for permission anew. Only pipes are the sandbox's own.
        for descriptor in standard:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.fchown(descriptor, user, user)
    for target, descriptor in enumerate(standard):
        os.dup2(descriptor, target)
    last = 3
    for descriptor in sorted(kept):
        os.set_inheritable(descriptor, True)
        os.closerange(last, descriptor)
        last = descriptor + 1
    os.closerange(last, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _spoken(options: list[str]) -> int:
    """Write options where bubblewrap reads them: not on its command line, which everyone on the machine can see."""
    if any("\0" in word for word in options):
        # It would end one option and begin another.
        raise ValueError("no option can hold a NUL")
    descriptor = os.memfd_create("options", 0)
    os.write(descriptor, b"".join(word.encode() + b"\0" for word in options))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _afresh(descriptor: int) -> int:
    """Open a file again, to read it from its beginning without moving anyone else's place in it."""
    return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
