"""`python -m services.executor.doctor`: which sandboxes can be had on this machine, what is missing, and how to get it.

A program of its own, so that whoever asks need not import the executor. It tries each sandbox in earnest, leaves nothing behind, and
ends with 0 if everything that is required works. Prints lines for people, or with `--json` one list of findings.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.gvisor.runsc import HOW_TO_GET, find_runsc
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupHierarchy
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.adapters.sandbox.seccomp import bpf

OK, WARN, FAIL = "ok", "warn", "fail"
_ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and what to do about it where something is wrong."""

    name: str
    status: str
    detail: str
    advice: str = ""


def findings() -> Iterator[Finding]:
    """Look at everything, what the others need first."""
    if platform.system() != "Linux":
        yield Finding("sandboxes", WARN, f"none on {platform.system()}", "Tools run in sandboxes on Linux only.")
        return
    yield filter_of_calls()
    yield control_groups()
    yield bubblewrap()
    yield gvisor()


def filter_of_calls() -> Finding:
    """The kernel can filter system calls, and there is a filter for this machine."""
    machine = os.uname().machine
    if machine not in bpf.ARCHITECTURES:
        return Finding("seccomp", FAIL, f"there is no filter for {machine}", "Sandboxes need x86_64 or aarch64.")
    if not _ACTIONS.exists() or "kill_process" not in _ACTIONS.read_text().split():
        return Finding(
            "seccomp", FAIL, "this kernel cannot filter system calls", "Sandboxes need Linux 4.14 with seccomp."
        )
    return Finding("seccomp", OK, f"a filter for {machine}")


def control_groups() -> Finding:
    """Whole trees of processes can be limited. Where they cannot, sandboxes work with the limits of single processes."""
    hierarchy = CgroupHierarchy.prepare("doctor")
    hierarchy.close()
    usable = ", ".join(sorted({"cpu" if name == "cpuacct" else name for name in hierarchy.parents})) or "none"
    if not hierarchy.missing:
        return Finding("cgroups", OK, f"can limit {usable}")
    lacking = ", ".join(sorted(hierarchy.missing))
    advice = "Run the executor as root or in a delegated control group (systemd: Delegate=yes); without, each process is limited alone."
    return Finding("cgroups", WARN, f"can limit {usable}; not {lacking}", advice)


def bubblewrap() -> Finding:
    """The sandbox that most tools run in. It is required: without it only built-in tools run."""
    why_not = asyncio.run(_tried(BubblewrapSandbox("doctor")))
    if not why_not:
        return Finding("sandbox:bubblewrap", OK, "a process was confined")
    advice = "Allow user namespaces (sysctl syscalls.unprivileged_userns_clone=1, or in your container); without, only built-in tools run."
    return Finding("sandbox:bubblewrap", FAIL, why_not, advice)


def gvisor() -> Finding:
    """The sandbox of tools that demand a kernel of their own. They are refused without it; all others run."""
    named = Path(os.environ["TOOLMESH_RUNSC"]) if os.environ.get("TOOLMESH_RUNSC") else None
    program = find_runsc(named)
    if program is None:
        return Finding("sandbox:gvisor", WARN, "not found; tools that demand it are refused", _sentence(HOW_TO_GET))
    why_not = asyncio.run(_tried(GvisorSandbox("doctor", runsc=program)))
    if why_not:
        return Finding("sandbox:gvisor", WARN, _sentence(why_not), "Tools that demand it are refused here.")
    return Finding("sandbox:gvisor", OK, f"a process was confined by {_version(program)} at {program}")


def main(arguments: list[str]) -> int:
    """Print what was found; return 1 if something that is required does not work, 2 if it was asked wrongly."""
    if arguments not in ([], ["--json"]):
        sys.stderr.write("usage: python -m services.executor.doctor [--json]\n")
        return 2
    found = list(findings())
    if arguments:
        sys.stdout.write(json.dumps([asdict(finding) for finding in found]) + "\n")
    else:
        for finding in found:
            lines = (
                f"{finding.status:<4}  {finding.name:<18}  {finding.detail}",
                *([finding.advice] if finding.advice else []),
            )
            sys.stdout.write(f"\n{'':<26}".join(lines) + "\n")
    return int(any(finding.status == FAIL for finding in found))


async def _tried(sandbox: Sandbox) -> str:
    try:
        return await asyncio.to_thread(sandbox.unavailable_reason)
    finally:
        await sandbox.close()


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _version(program: Path) -> str:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, timeout=10, check=False, text=True).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "gVisor"
    return said.partition("\n")[0].strip()[:80] or "gVisor"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
