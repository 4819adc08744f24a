"""The seccomp allow list as an OCI profile for gVisor.

gVisor handles all calls itself, so none reaches the host kernel. The filter still makes tools behave the same in both
sandboxes, reports forbidden calls, and reduces the reachable code of gVisor.
"""

from __future__ import annotations

import os
from errno import EPERM
from typing import Any

from services.executor.adapters.sandbox.seccomp.allowlist import (
    AF_INET,
    AF_INET6,
    AF_UNIX,
    ALLOWED,
    CLONE_NAMESPACE_FLAGS,
    ENOSYS_CALLS,
    IPPROTO_TCP,
    KILL_CALLS,
    PERSONALITIES,
    SOCK_STREAM,
    SOCK_TYPE_MASK,
)

_OLDER_NAMES = ("pselect",)
"""What gVisor of 2022 calls pselect6; newer versions skip names that they do not know."""
_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}


def seccomp_profile(machine: str | None = None, *, loopback: bool = False) -> dict[str, Any]:
    """Return the profile for a machine (default: this one). `loopback` allows TCP sockets. Raises KeyError for an
    unsupported machine."""
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "architectures": [_ARCHITECTURES[machine or os.uname().machine]],
        "syscalls": [
            {"names": sorted(KILL_CALLS), "action": "SCMP_ACT_KILL"},
            # Without a tracer SCMP_ACT_TRACE returns ENOSYS. Older gVisor versions ignore an explicit errno and return
            # EPERM, and then threads cannot be started.
            {"names": sorted(ENOSYS_CALLS), "action": "SCMP_ACT_TRACE"},
            # ioctl needs no check: there is no terminal inside.
            {"names": [*sorted(ALLOWED), "ioctl", *_OLDER_NAMES], "action": "SCMP_ACT_ALLOW"},
            {"names": ["socket", "socketpair"], "action": "SCMP_ACT_ALLOW", "args": [_equal(AF_UNIX)]},
            *(_TCP_SOCKETS if loopback else ()),
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [_without(CLONE_NAMESPACE_FLAGS)]},
            *(
                {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [_equal(value)]}
                for value in PERSONALITIES
            ),
        ],
    }


def _equal(value: int, index: int = 0) -> dict[str, Any]:
    return {"index": index, "value": value, "op": "SCMP_CMP_EQ"}


def _without(bits: int) -> dict[str, Any]:
    return {"index": 0, "value": bits, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}


_TCP_SOCKETS = [
    {
        "names": ["socket"],
        "action": "SCMP_ACT_ALLOW",
        "args": [
            _equal(family),
            {"index": 1, "value": SOCK_TYPE_MASK, "valueTwo": SOCK_STREAM, "op": "SCMP_CMP_MASKED_EQ"},
            _equal(protocol, 2),
        ],
    }
    for family in (AF_INET, AF_INET6)
    for protocol in (0, IPPROTO_TCP)
]
