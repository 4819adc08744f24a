"""Prepares a forked process and replaces it with bubblewrap: cgroup, mounts, user, descriptors and limits.

If a step fails, the process exits without running anything and reports the error on its status pipe.
"""

from __future__ import annotations

import fcntl
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
_FIRST_FREE = 10
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


class ChildDescriptors(NamedTuple):
    """The file descriptors that the sandbox gets."""

    stdin: int
    stdout: int
    stderr: int
    status: int
    block: int
    """Bubblewrap blocks on this until the launcher has set its limits; -1 if it need not."""
    program: int
    """The seccomp filter."""
    events: int = -1
    """The pipe of events; -1 for none."""
    inputs: int = -1


def exec_bwrap(
    config: dict[str, Any], plan: dict[str, Any], user: int, group: Cgroup | None, ends: ChildDescriptors
) -> None:
    """Replace this process with bubblewrap; never returns. `user` is the host user to switch to, 0 for the current
    one."""
    try:
        ends = ChildDescriptors(*(_raised(end) for end in ends))
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
    if plan["mount_namespace"]:
        syscalls.join_mount_namespace(plan["mount_namespace"])
    program, staged = config["bwrap"], {}
    if user:
        staged = _stage_mounts(config, plan, user)
        program = program.replace(config["bwrap_home"], staged[config["bwrap_home"]], 1)
    descriptors = {"--json-status-fd": ends.status, "--seccomp": _raised(_reopen(ends.program))}
    if ends.block >= 0:
        descriptors["--block-fd"] = ends.block
    options = _write_options(bwrap_argv.build_options(config, plan, lambda host: staged.get(host, host), descriptors))
    pipes = [ends.stdin, ends.stdout, ends.stderr]
    pipes += [ends.events, ends.inputs] if plan["has_events"] else []
    _arrange_descriptors(pipes, {options, *descriptors.values()}, user)
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
    os.execve(program, [program, "--args", str(options), "--", *plan["argv"]], {})  # noqa: S606


def _stage_mounts(config: dict[str, Any], plan: dict[str, Any], user: int) -> dict[str, str]:
    """Bind-mount every source below one directory that the sandbox user can reach, even if the originals are in private
    homes."""
    syscalls.unshare_mounts()
    syscalls.mount_tmpfs(config["stage"])
    staged = {}
    for number, host in enumerate((*bwrap_argv.bind_sources(config, plan), config["bwrap_home"])):
        target = f"{config['stage']}/{number}"
        if os.path.isdir(host):  # noqa: PTH112
            os.mkdir(target)  # noqa: PTH102
        else:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        syscalls.bind_mount(host, target)
        staged[host] = target
    for host, _ in plan["writable"]:
        _chown_tree(host, user)
    if plan["egress_socket"]:
        os.chown(plan["egress_socket"], user, user)
    return staged


def _chown_tree(path: str, user: int) -> None:
    """Change the owner of a tree. Symbolic links are changed themselves, never followed."""
    os.lchown(path, user, user)
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            os.lchown(os.path.join(folder, name), user, user)  # noqa: PTH118


def _arrange_descriptors(pipes: list[int], kept: set[int], user: int) -> None:
    """Set the pipes from descriptor 0 on, keep the descriptors that bubblewrap uses, and close the others."""
    if user:
        # Opening /dev/stdin or /dev/stdout by name checks permissions again. Only pipes belong to the sandbox alone.
        for descriptor in pipes:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.fchown(descriptor, user, user)
    for target, descriptor in enumerate(pipes):
        os.dup2(descriptor, target)
    last = len(pipes)
    for descriptor in sorted(kept):
        os.set_inheritable(descriptor, True)
        os.closerange(last, descriptor)
        last = descriptor + 1
    os.closerange(last, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _write_options(options: list[str]) -> int:
    """Write options to a memfd: a command line is visible to every user of the machine."""
    if any("\0" in option for option in options):
        # A NUL would end one option and start another.
        raise ValueError("an option contains a NUL character")
    descriptor = _raised(os.memfd_create("options", 0))
    os.write(descriptor, b"".join(option.encode() + b"\0" for option in options))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _raised(descriptor: int) -> int:
    """Return a descriptor above those that the sandbox gets for its pipes; -1 stays."""
    return descriptor if descriptor < 0 else fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)


def _reopen(descriptor: int) -> int:
    """Reopen a file to read it from the start without moving the offset of the shared descriptor."""
    return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
