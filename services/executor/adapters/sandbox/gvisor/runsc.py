"""gVisor's program `runsc`: its location and its command line."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BUILT = Path(__file__).resolve().parents[5] / ".toolmesh" / "bin" / "runsc"
"""Where `make gvisor` puts it."""
PLATFORMS = ("systrap", "ptrace")
"""How it intercepts system calls, fastest first; not every build offers both."""
HOW_TO_GET = (
    "gVisor's program `runsc` was not found: run `make gvisor`, or install it and set TOOLMESH_RUNSC unless it is on "
    "the PATH"
)
_HELP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Runsc:
    """The path of runsc, the platform to use, and whether it passes descriptors on to the process inside."""

    program: Path
    platform: str
    passes_descriptors: bool = True

    def command(self, folder: Path, *, egress: bool, descriptors: Sequence[int] = ()) -> list[str]:
        """Return the command that runs the bundle in a folder and exits with the code of the process inside.

        The network is off, and no descriptors but the standard ones and the given ones are passed on; host unix sockets
        can be opened only if the plan has an egress socket, and named pipes only where they stand for the given
        descriptors. The executor owns the cgroup, because gVisor would remove it, and its counters, at the end.
        """
        passed = descriptors if self.passes_descriptors else ()
        return [
            str(self.program),
            f"--root={folder}/state",
            f"--log={folder}/log",
            "--log-format=json",
            f"--platform={self.platform}",
            "--network=none",
            "--ignore-cgroups",
            "--overlay2=none",
            "--oci-seccomp",
            f"--host-uds={'open' if egress else 'none'}",
            *(("--host-fifo=open",) if len(passed) < len(descriptors) else ()),
            *(("--rootless",) if os.geteuid() else ()),
            "run",
            *(f"--pass-fd={descriptor}:{descriptor}" for descriptor in passed),
            f"--bundle={folder}",
            f"--pid-file={folder}/pid",
            folder.name,
        ]

    def terminate_command(self, folder: Path) -> list[str]:
        """Return the command that sends SIGTERM to the first process of a running bundle."""
        rootless = ("--rootless",) if os.geteuid() else ()
        return [str(self.program), f"--root={folder}/state", *rootless, "kill", folder.name, "TERM"]


def find_runsc(configured: Path | None) -> Path | None:
    """Return the path of runsc: the configured one, else the built one, else from the PATH; None if not executable.

    The built one is pinned; the one of a distribution may be years old.
    """
    program = configured or (BUILT if os.access(BUILT, os.X_OK) else Path(shutil.which("runsc") or BUILT))
    return program if os.access(program, os.X_OK) else None


def passes_descriptors(program: Path) -> bool:
    """Return whether it knows `--pass-fd`, which it has since 2023. Raises OSError or subprocess.TimeoutExpired."""
    described = subprocess.run(
        [program, "help", "run"], capture_output=True, env={}, cwd="/", timeout=_HELP_SECONDS, check=False
    )
    return b"-pass-fd" in described.stdout + described.stderr
