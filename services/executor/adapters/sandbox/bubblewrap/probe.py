"""Probes whether bubblewrap works on this machine by running one sandbox."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from services.executor.adapters.sandbox.bubblewrap.launcher_client import ExitFacts, request_start, spawn_launcher
from services.executor.adapters.sandbox.exit_report import diagnose
from services.executor.adapters.sandbox.host_checks import explain
from services.executor.adapters.sandbox.launcher.main import MESSAGE_BYTES, SHUTDOWN
from services.executor.adapters.sandbox.port import ExitKind, Plan
from services.executor.adapters.sandbox.rootfs import interpreter_path

_TIMEOUT_SECONDS = 20.0
_PROBE_CODE = """
import os, socket, sys
assert os.getuid() != 0 and not os.path.exists("/etc/shadow") and not os.access("/", os.W_OK)
open("/tmp/probe", "w").close()
try:
    socket.socket(socket.AF_INET)
except PermissionError:
    sys.exit(0)
sys.exit("the network is reachable")
"""
_DISABLING_SYSCTLS = (
    (
        "kernel/unprivileged_userns_clone",
        "0",
        "user namespaces are disabled (kernel.unprivileged_userns_clone = 0)",
    ),
    ("user/max_user_namespaces", "0", "user namespaces are disabled (user.max_user_namespaces = 0)"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns = 1)",
    ),
)


def probe(config: dict[str, Any]) -> str:
    """Run a process that checks its own confinement; return one sentence why it failed, or an empty string."""
    plan = Plan((interpreter_path(), "-I", "-S", "-c", _PROBE_CODE))
    report = diagnose(plan, _run(config, plan))
    if report.kind is ExitKind.EXITED and report.code == 0:
        return ""
    detail = report.stderr_tail.strip().rpartition("\n")[2][:200] or report.kind.value
    return explain(f"the bubblewrap probe failed: {'; '.join((*_disabling_sysctls(), detail))}")


def _run(config: dict[str, Any], plan: Plan) -> ExitFacts:
    process, control = spawn_launcher(config)
    devnull = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        with control:
            control.settimeout(_TIMEOUT_SECONDS)
            request_start(control, 1, plan, [devnull, devnull])
            while raw := control.recv(MESSAGE_BYTES):
                message: dict[str, Any] = json.loads(raw)
                if "ended" in message:
                    control.send(SHUTDOWN)
                    facts: ExitFacts = message["facts"]
                    return facts
    except OSError as error:
        return {"failed": f"the launcher did not answer: {type(error).__name__}"}
    finally:
        os.close(devnull)
        _end(process)
    return {"failed": "the launcher ended"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the launcher, which ends with its control socket; kill one that does not."""
    try:
        process.wait(_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _disabling_sysctls() -> list[str]:
    reasons = []
    for name, value, sentence in _DISABLING_SYSCTLS:
        path = Path("/proc/sys") / name
        if path.exists() and path.read_text().strip() == value:
            reasons.append(sentence)
    return reasons
