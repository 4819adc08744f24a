"""The pipes of events and input for a `runsc` that cannot pass descriptors, such as the one of Debian 12.

They are named pipes in the folder of the container and are shown to the process, which opens them before it becomes the
program of the plan.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from services.executor.adapters.sandbox.port import EVENTS_DESCRIPTOR, INPUT_DESCRIPTOR, Plan
from services.executor.adapters.sandbox.rootfs import interpreter_path

_NAMES = ("events", "input")
_SHOWN_IN = "/run/toolmesh"
# Python ignores the signals, and a program would inherit that.
_OPEN_AND_EXECUTE = f"""
import os, signal, sys
for name, access, target in (("events", os.O_WRONLY, {EVENTS_DESCRIPTOR}), ("input", os.O_RDONLY, {INPUT_DESCRIPTOR})):
    opened = os.open("{_SHOWN_IN}/" + name, access)
    if opened != target:
        os.dup2(opened, target)
        os.close(opened)
    os.set_inheritable(target, True)
for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(ignored, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def with_named_pipes(plan: Plan, folder: Path) -> Plan:
    """Make the named pipes in a folder of this user's alone. Returns the plan whose process opens them."""
    for name in _NAMES:
        path = folder / name
        os.mkfifo(path)
        # The user inside is another one.
        path.chmod(0o666)
    return replace(
        plan,
        argv=(interpreter_path(), "-I", "-S", "-B", "-c", _OPEN_AND_EXECUTE, *plan.argv),
        writable=(*plan.writable, (str(folder / "events"), f"{_SHOWN_IN}/events")),
        readable=(*plan.readable, (str(folder / "input"), f"{_SHOWN_IN}/input")),
    )


def open_named_pipes(folder: Path) -> list[tuple[int, int]]:
    """Open both ends of the pipes of events and of input, each as (read end, write end). Raises OSError."""
    opened: list[int] = []
    try:
        for name in _NAMES:
            # A reader first: without one, a writer that does not wait is refused.
            for access in (os.O_RDONLY, os.O_WRONLY):
                opened.append(os.open(folder / name, access | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        raise
    return [(opened[0], opened[1]), (opened[2], opened[3])]
