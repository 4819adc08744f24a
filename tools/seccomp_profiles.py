"""Render the seccomp profiles of a pod in which the executor starts sandboxes without a capability.

A profile is the runtime's default (`deploy/seccomp/runtime-default.json`) and the calls that the sandboxes make beyond
it. Its name holds a version, because pods name it and nodes hold it as a file: a changed profile gets the next version,
so that pods of both versions run while nodes are updated.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "deploy" / "seccomp"
VERSION = 3
GVISOR_CALLS = frozenset({"chroot", "clone", "mount", "pivot_root", "umount2"})
"""What gVisor needs without a capability, found by leaving out one call at a time."""
VOLUME_CALLS = frozenset({"setns", "unshare"})
"""What tools with volumes need: a mount namespace for the copies, which the sandboxes join."""
CALLS = {
    "toolmesh-executor": GVISOR_CALLS | VOLUME_CALLS | {"sethostname"},
    "toolmesh-executor-gvisor": GVISOR_CALLS | VOLUME_CALLS,
}
"""The calls beyond the default, by profile: of both sandboxes, and of gVisor alone."""
_ENOSYS, _EPERM = 38, 1


def profile(calls: frozenset[str]) -> dict[str, Any]:
    """Return the OCI profile that allows the runtime's default and these calls."""
    default = json.loads((FOLDER / "runtime-default.json").read_text())
    conditional = [rule for rule in default["conditional"] if rule["name"] not in calls]
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _EPERM,
        "architectures": default["architectures"],
        "syscalls": [
            {"names": sorted(calls.union(default["allowed"])), "action": "SCMP_ACT_ALLOW"},
            *({"names": [rule["name"]], "action": "SCMP_ACT_ALLOW", "args": rule["args"]} for rule in conditional),
            # Libraries fall back to other calls if a call is absent, and fail if it is forbidden.
            {"names": default["absent"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
        ],
    }


def render(name: str) -> str:
    """Return the text of a profile."""
    return json.dumps(profile(CALLS[name]), indent=1) + "\n"


def documents() -> dict[str, Callable[[], str]]:
    """Return how each profile is rendered, by its path in the repository."""
    return {f"deploy/seccomp/{name}-v{VERSION}.json": partial(render, name) for name in CALLS}
