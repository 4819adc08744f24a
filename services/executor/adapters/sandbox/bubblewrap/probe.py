"""Finding out whether sandboxes can be made on this machine, by making one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from services.executor.adapters.sandbox.bubblewrap.launcher_client import ExitFacts, request_start, spawn_launcher
from services.executor.adapters.sandbox.exit_report import diagnose
from services.executor.adapters.sandbox.launcher.main import MESSAGE_BYTES, SHUTDOWN
from services.executor.adapters.sandbox.port import ExitKind, Plan
from services.executor.adapters.sandbox.rootfs import interpreter_path

_PATIENCE = 20.0
_CONFINED = """
import os, socket, sys
assert os.getuid() != 0 and not os.path.exists("/etc/shadow") and not os.access("/", os.W_OK)
open("/tmp/probe", "w").close()
try:
    socket.socket(socket.AF_INET)
except PermissionError:
    sys.exit(0)
sys.exit("the network is within reach")
"""
_SWITCHES = (
    (
        "kernel/unprivileged_userns_clone",
        "0",
        "user namespaces are switched off (syscalls.unprivileged_userns_clone = 0)",
    ),
    ("user/max_user_namespaces", "0", "user namespaces are switched off (user.max_user_namespaces = 0)"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor keeps programs from using user namespaces (syscalls.apparmor_restrict_unprivileged_userns = 1)",
    ),
)


def probe(config: dict[str, Any]) -> str:
    """Start a process that looks whether it is confined; return why it could not be, in a sentence, or nothing."""
    plan = Plan((interpreter_path(), "-I", "-S", "-c", _CONFINED))
    report = diagnose(plan, _run(config, plan))
    if report.kind is ExitKind.EXITED and report.code == 0:
        return ""
    said = report.stderr_tail.strip().rpartition("\n")[2][:200] or report.kind.value
    return f"no process could be confined: {'; '.join((*_switched_off(), said))}"


def _run(config: dict[str, Any], plan: Plan) -> ExitFacts:
    process, control = spawn_launcher(config)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        with control:
            control.settimeout(_PATIENCE)
            request_start(control, 1, plan, nothing, nothing)
            while said := control.recv(MESSAGE_BYTES):
                message: dict[str, Any] = json.loads(said)
                if "ended" in message:
                    control.send(SHUTDOWN)
                    facts: ExitFacts = message["facts"]
                    return facts
    except OSError as error:
        return {"failed": f"the launcher did not answer: {type(error).__name__}"}
    finally:
        os.close(nothing)
        process.wait()
    return {"failed": "the launcher ended"}


def _switched_off() -> list[str]:
    found = []
    for name, value, sentence in _SWITCHES:
        path = Path("/proc/sys") / name
        if path.exists() and path.read_text().strip() == value:
            found.append(sentence)
    return found
