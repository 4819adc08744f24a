"""The same filter of system calls as every other sandbox's, as gVisor is told of it. Pure.

gVisor answers all of them by itself, so none would reach this machine's kernel. But a tool behaves the same wherever it runs, what no
honest tool does is noticed wherever it is tried, and less of gVisor itself is within reach.
"""

from __future__ import annotations

import os
from errno import EPERM
from typing import Any

from services.executor.adapters.sandbox.seccomp.allowlist import (
    AF_UNIX,
    ALLOWED,
    CLONE_NAMESPACE_FLAGS,
    ENOSYS_CALLS,
    KILL_CALLS,
    PERSONALITIES,
)

_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}


def seccomp_profile(machine: str | None = None) -> dict[str, Any]:
    """Return the filter for a machine, this one unless told. Raises KeyError for a machine that it cannot be made for."""
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "architectures": [_ARCHITECTURES[machine or os.uname().machine]],
        "syscalls": [
            {"names": sorted(KILL_CALLS), "action": "SCMP_ACT_KILL"},
            # As a call that a tracer decides about: nobody can be one, so the call is answered as if there were none such. Plainly
            # named, that answer is ignored by older versions of gVisor, which refuse instead, and threads cannot be started.
            {"names": sorted(ENOSYS_CALLS), "action": "SCMP_ACT_TRACE"},
            # There is no terminal inside whose owner could be talked to behind their back.
            {"names": [*sorted(ALLOWED), "ioctl"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["socket", "socketpair"], "action": "SCMP_ACT_ALLOW", "args": [_equal(AF_UNIX)]},
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [_without(CLONE_NAMESPACE_FLAGS)]},
            *({"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [_equal(each)]} for each in PERSONALITIES),
        ],
    }


def _equal(value: int) -> dict[str, Any]:
    return {"index": 0, "value": value, "op": "SCMP_CMP_EQ"}


def _without(bits: int) -> dict[str, Any]:
    return {"index": 0, "value": bits, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
