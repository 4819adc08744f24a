"""Compiles the allow list of system calls into a seccomp BPF program.

Refused calls fail with EPERM, unknown calls with ENOSYS, and calls of KILL_CALLS end the process with SIGSYS. Calls of
another architecture also end it, because their numbers differ. Arguments are compared in the 32 bits that the kernel
uses, so the upper half of a register cannot bypass the filter.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from errno import ENOSYS, EPERM

from system_calls import syscalls  # type: ignore[import-untyped]

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
    TERMINAL_INPUT_IOCTLS,
)

ALLOW = 0x7FFF0000
KILL = 0x80000000
_ERRNO = 0x00050000
REFUSE = _ERRNO | EPERM
ABSENT = _ERRNO | ENOSYS

_LOAD, _JUMP, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
_FAR = 255
_X32 = 0x40000000

Instruction = tuple[int, int, int, int]
"""Opcode, jump offset if true, jump offset if false, operand."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A supported machine architecture."""

    name: str
    """Name in the system call table."""
    audit: int
    """AUDIT_ARCH value of the kernel."""
    has_x32: bool = False


ARCHITECTURES = {
    "x86_64": Architecture("x86_64", 0xC000003E, has_x32=True),
    "aarch64": Architecture("arm64", 0xC00000B7),
}


def compile_filter(
    machine: str | None = None, *, without: frozenset[str] = frozenset(), loopback: bool = False
) -> bytes:
    """Return the BPF program for a machine (default: this one). `without` removes calls from the allow list, and
    `loopback` allows TCP sockets. Raises KeyError for an unsupported machine."""
    architecture = ARCHITECTURES[machine or os.uname().machine]
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture.audit),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if architecture.has_x32:
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, KILL)]
    code += _binary_search(_ranges(syscalls().load_arch_table(architecture.name), ALLOWED - without, loopback))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _compare_argument(offset: int, values: Sequence[int], then: int, otherwise: int) -> list[Instruction]:
    """Compare one argument with a list of values."""
    tests = [(_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [(_LOAD, 0, 0, offset), *tests, (_RETURN, 0, 0, otherwise), (_RETURN, 0, 0, then)]


_ARGUMENT_CHECKS: dict[str, list[Instruction]] = {
    "socket": _compare_argument(_FIRST, (AF_UNIX,), ALLOW, REFUSE),
    "socketpair": _compare_argument(_FIRST, (AF_UNIX,), ALLOW, REFUSE),
    "ioctl": _compare_argument(_SECOND, TERMINAL_INPUT_IOCTLS, REFUSE, ALLOW),
    "personality": _compare_argument(_FIRST, PERSONALITIES, ALLOW, REFUSE),
    "clone": [
        (_LOAD, 0, 0, _FIRST),
        (_ANY_BIT, 0, 1, CLONE_NAMESPACE_FLAGS),
        (_RETURN, 0, 0, REFUSE),
        (_RETURN, 0, 0, ALLOW),
    ],
}
"""Calls that are allowed depending on an argument."""
_TCP_SOCKETS: list[Instruction] = [
    (_LOAD, 0, 0, _FIRST),
    (_EQUAL, 9, 0, AF_UNIX),
    (_EQUAL, 1, 0, AF_INET),
    (_EQUAL, 0, 6, AF_INET6),
    (_LOAD, 0, 0, _SECOND),
    (_AND, 0, 0, SOCK_TYPE_MASK),
    (_EQUAL, 0, 3, SOCK_STREAM),
    (_LOAD, 0, 0, _THIRD),
    (_EQUAL, 2, 0, 0),
    (_EQUAL, 1, 0, IPPROTO_TCP),
    (_RETURN, 0, 0, REFUSE),
    (_RETURN, 0, 0, ALLOW),
]
"""The check of `socket` where TCP is allowed beside unix sockets."""


def _action(name: str | None, allowed: frozenset[str], loopback: bool) -> list[Instruction]:
    if loopback and name == "socket":
        return _TCP_SOCKETS
    if name in _ARGUMENT_CHECKS:
        return _ARGUMENT_CHECKS[name]
    if name is None or name in ENOSYS_CALLS:
        return [(_RETURN, 0, 0, ABSENT)]
    if name in KILL_CALLS:
        return [(_RETURN, 0, 0, KILL)]
    return [(_RETURN, 0, 0, ALLOW if name in allowed else REFUSE)]


def _ranges(numbers: dict[str, int], allowed: frozenset[str], loopback: bool) -> list[tuple[int, list[Instruction]]]:
    """Group the call numbers into ranges with the same action, as (first number, instructions)."""
    names = {number: name for name, number in numbers.items()}
    ranges: list[tuple[int, list[Instruction]]] = []
    for number in range(max(names) + 2):
        action = _action(names.get(number), allowed, loopback)
        if not ranges or ranges[-1][1] != action:
            ranges.append((number, action))
    return ranges


def _binary_search(ranges: Sequence[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Build a binary search over the ranges, so that a call costs few instructions."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = _binary_search(ranges[:middle]), _binary_search(ranges[middle:])
    start = ranges[middle][0]
    if len(below) <= _FAR:
        return [(_AT_LEAST, len(below), 0, start), *below, *above]
    return [(_AT_LEAST, 0, 1, start), (_JUMP, 0, 0, len(below)), *below, *above]
