"""gVisor's program: where it is, and how it is called."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

FETCHED = Path(__file__).resolve().parents[5] / ".toolmesh" / "bin" / "runsc"
"""Where `make gvisor` puts it."""
PLATFORMS = ("systrap", "ptrace")
"""How it catches system calls, the quickest first; which of them a build offers differs."""
HOW_TO_GET = (
    "gVisor's program `runsc` was not found: `make gvisor` fetches it on Debian and Ubuntu, elsewhere install it, "
    "and name it with TOOLMESH_RUNSC unless it is on the PATH"
)


@dataclass(frozen=True, slots=True)
class Runsc:
    """A program that can be run, and the platform that works on this machine."""

    program: Path
    platform: str

    def command(self, folder: Path, *, egress: bool) -> list[str]:
        """Return the command that runs the bundle in a folder and ends as the process inside does.

        There is no network at all; a socket of the host can be opened only where the plan shows one. Limits of the whole are the
        executor's: gVisor would remove its control group, and the evidence in it, at the end.
        """
        name = folder.name
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
            *(("--rootless",) if os.geteuid() else ()),
            "run",
            f"--bundle={folder}",
            f"--pid-file={folder}/pid",
            name,
        ]


def find_runsc(named: Path | None) -> Path | None:
    """Return the program: the one that was named, else the one on the PATH, else the one that was fetched; None if that may not be run."""
    found = named or Path(shutil.which("runsc") or FETCHED)
    return found if os.access(found, os.X_OK) else None
