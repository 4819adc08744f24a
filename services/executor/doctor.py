"""`python -m services.executor.doctor`: checks which sandboxes work on this machine and what is missing.

A separate program, so that callers need not import the executor. It starts each sandbox, leaves nothing behind, and
exits with 0 if everything required works. Prints readable lines, or with `--json` a list of check results.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

from libs.common.telemetry.log import Log
from services.executor.adapters.sandbox.bounds import bounds_with
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.gvisor.runsc import BUILT, HOW_TO_GET, find_runsc
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.adapters.sandbox.host_checks import INSIDE_GVISOR, runs_inside_gvisor
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupHierarchy, CgroupPolicy
from services.executor.adapters.sandbox.pods.kubernetes_api import KubernetesPodApi
from services.executor.adapters.sandbox.pods.pod_manifest import PodConfig
from services.executor.adapters.sandbox.pods.sandbox import PodSandbox
from services.executor.adapters.sandbox.pods.sandbox_claims import ClaimPodApi
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.adapters.sandbox.rootfs import interpreter_path
from services.executor.adapters.sandbox.seccomp import bpf

OK, WARN, FAIL = "ok", "warn", "fail"
_ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")
_DATE = re.compile(r"(?<!\d)20\d{6}")
_MAX_AGE = timedelta(days=90)
_OLD_GVISOR = (
    "Old releases have known vulnerabilities. Run `make gvisor` of a current Toolmesh and leave TOOLMESH_RUNSC empty, "
    "or name a current release with TOOLMESH_RUNSC."
)


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check, with advice if something is wrong."""

    name: str
    status: str
    detail: str
    advice: str = ""


def run_checks() -> Iterator[DoctorCheck]:
    """Run all checks, prerequisites first."""
    if platform.system() != "Linux":
        yield DoctorCheck(
            "sandboxes", WARN, f"not available on {platform.system()}", "Tools run in sandboxes on Linux only."
        )
        return
    yield check_host()
    yield check_seccomp()
    yield check_cgroups()
    yield check_bubblewrap()
    yield check_gvisor()
    if os.environ.get("TOOLMESH_POD_NAMESPACE"):
        yield check_pods()


def check_host() -> DoctorCheck:
    """Check that this process can start sandboxes at all."""
    if runs_inside_gvisor():
        return DoctorCheck("host", FAIL, "this process runs inside gVisor", _sentence(INSIDE_GVISOR))
    return DoctorCheck(
        "host", OK, f"Linux {os.uname().release} as {'root' if os.geteuid() == 0 else 'an ordinary user'}"
    )


def check_seccomp() -> DoctorCheck:
    """Check that the kernel supports seccomp and a filter exists for this machine."""
    machine = os.uname().machine
    if machine not in bpf.ARCHITECTURES:
        return DoctorCheck("seccomp", FAIL, f"no seccomp filter for {machine}", "Sandboxes need x86_64 or aarch64.")
    if not _ACTIONS.exists() or "kill_process" not in _ACTIONS.read_text().split():
        return DoctorCheck(
            "seccomp", FAIL, "the kernel does not support seccomp filters", "Sandboxes need Linux 4.14 with seccomp."
        )
    return DoctorCheck("seccomp", OK, f"filter for {machine} available")


def check_cgroups() -> DoctorCheck:
    """Check which cgroup controllers can limit process trees, and say what bounds each resource here."""
    policy = _cgroup_policy()
    hierarchy = CgroupHierarchy.for_policy("doctor", policy)
    hierarchy.close()
    detail = str(bounds_with(hierarchy.parents))
    if not hierarchy.missing:
        return DoctorCheck("cgroups", OK, detail)
    advice = (
        "Run the executor as root or in a delegated cgroup (systemd: Delegate=yes), or name one with "
        "TOOLMESH_SANDBOX_CGROUP_PARENT."
    )
    if policy.mode == "required":
        return DoctorCheck("cgroups", FAIL, f"{detail}; TOOLMESH_SANDBOX_CGROUPS requires groups", advice)
    return DoctorCheck("cgroups", WARN, detail, advice)


def check_bubblewrap() -> DoctorCheck:
    """Check bubblewrap, which most tools need: without it only built-in tools run."""
    reason = asyncio.run(_probe(BubblewrapSandbox("doctor", cgroups=_cgroup_policy())))
    if not reason:
        return DoctorCheck("sandbox:bubblewrap", OK, "works")
    advice = (
        "Allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, or in your container). "
        "Without them only built-in tools run."
    )
    return DoctorCheck("sandbox:bubblewrap", FAIL, reason, advice)


def check_gvisor() -> DoctorCheck:
    """Check gVisor, which tools of the tier `kernel` need. Without it they are refused; all others run."""
    configured = Path(os.environ["TOOLMESH_RUNSC"]) if os.environ.get("TOOLMESH_RUNSC") else None
    program = find_runsc(configured)
    if program is None and configured is not None:
        detail = f"TOOLMESH_RUNSC names {configured}, which is not a program; tools that demand it are refused"
        return DoctorCheck("sandbox:gvisor", WARN, detail, f"Name another, or none for {find_runsc(None) or BUILT}.")
    if program is None:
        return DoctorCheck("sandbox:gvisor", WARN, "not found; tools that demand it are refused", _sentence(HOW_TO_GET))
    reason, platform_name = asyncio.run(_probe_gvisor(program))
    if reason:
        return DoctorCheck("sandbox:gvisor", WARN, _sentence(reason), "Tools that demand it are refused here.")
    version = _version(program)
    released = release_date(version)
    detail = f"works: {version} at {program}, {_age(released)}, platform {platform_name}"
    if released is None or date.today() - released > _MAX_AGE:  # noqa: DTZ011
        return DoctorCheck("sandbox:gvisor", WARN, detail, _OLD_GVISOR)
    return DoctorCheck("sandbox:gvisor", OK, detail)


def check_pods() -> DoctorCheck:
    """Check pods, which tools of the tier `machine` need, where a namespace for them is named."""
    environment = os.environ
    kubeconfig = environment.get("TOOLMESH_POD_KUBECONFIG")
    namespace, image = environment["TOOLMESH_POD_NAMESPACE"], environment.get("TOOLMESH_POD_IMAGE", "")
    python = environment.get("TOOLMESH_POD_PYTHON") or interpreter_path()
    config = PodConfig(namespace, image, python, environment.get("TOOLMESH_POD_RUNTIME_CLASS", ""))
    claims = environment.get("TOOLMESH_POD_CLAIMS") or "preferred"
    reason, claimed = asyncio.run(_probe_pods(config, Path(kubeconfig) if kubeconfig else None, claims))
    if not reason:
        way = "by a SandboxClaim" if claimed else "without a SandboxClaim"
        return DoctorCheck("sandbox:pods", OK, f"a pod in namespace {namespace} works, made {way}")
    advice = (
        "Tools that demand pods are refused here. deploy/k8s/components/tool-pods has the namespace and the rights."
    )
    return DoctorCheck("sandbox:pods", WARN, reason, advice)


def release_date(version: str) -> date | None:
    """Return the day of a gVisor release, which its version holds; None if it does not."""
    for digits in _DATE.findall(version):
        with suppress(ValueError):
            return datetime.strptime(digits, "%Y%m%d").date()  # noqa: DTZ007
    return None


def main(arguments: list[str]) -> int:
    """Print the results; return 1 if something required does not work, 2 for wrong arguments."""
    if arguments not in ([], ["--json"]):
        sys.stderr.write("usage: python -m services.executor.doctor [--json]\n")
        return 2
    results = list(run_checks())
    if arguments:
        sys.stdout.write(json.dumps([asdict(result) for result in results]) + "\n")
    else:
        for result in results:
            lines = (
                f"{result.status:<4}  {result.name:<18}  {result.detail}",
                *([result.advice] if result.advice else []),
            )
            sys.stdout.write(f"\n{'':<26}".join(lines) + "\n")
    return int(any(result.status == FAIL for result in results))


def _cgroup_policy() -> CgroupPolicy:
    environment = os.environ
    mode, parent = environment.get("TOOLMESH_SANDBOX_CGROUPS"), environment.get("TOOLMESH_SANDBOX_CGROUP_PARENT", "")
    return CgroupPolicy(mode or "preferred", parent)


async def _probe(sandbox: Sandbox) -> str:
    try:
        return await asyncio.to_thread(sandbox.unavailable_reason)
    finally:
        await sandbox.close()


async def _probe_gvisor(program: Path) -> tuple[str, str]:
    sandbox = GvisorSandbox("doctor", cgroups=_cgroup_policy(), runsc=program)
    try:
        reason = await asyncio.to_thread(sandbox.unavailable_reason)
        return reason, sandbox.platform
    finally:
        await sandbox.close()


async def _probe_pods(config: PodConfig, kubeconfig: Path | None, claims: str) -> tuple[str, bool]:
    """Return why pods cannot be used, or an empty string, and whether they are had by claims."""
    api = KubernetesPodApi(config.namespace, kubeconfig)
    claiming = ClaimPodApi(api, config.namespace, required=claims == "required")
    log = Log("doctor", descriptor=sys.stderr.fileno())
    pods = PodSandbox(api if claims == "off" else claiming, config, f"doctor-{os.getpid()}", log)
    try:
        await pods.probe()
        reason = pods.unavailable_reason()
        return reason, not reason and claims != "off" and await claiming.uses_claims()
    finally:
        await pods.close()


def _age(released: date | None) -> str:
    if released is None:
        return "of unknown age"
    days = (date.today() - released).days  # noqa: DTZ011
    return f"{days // 365} years old" if days >= 2 * 365 else f"{days} days old"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _version(program: Path) -> str:
    try:
        output = subprocess.run([program, "--version"], capture_output=True, timeout=10, check=False, text=True).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "gVisor"
    return output.partition("\n")[0].strip()[:80] or "gVisor"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
