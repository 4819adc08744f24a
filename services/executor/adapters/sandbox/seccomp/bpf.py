"""The filter that stands between a confined process and the kernel, compiled from names to the kernel's own little machine code.

Refused calls fail with EPERM, calls that no kernel has with ENOSYS, and calls that no honest tool makes end the process with
SIGSYS. Calls of another architecture end it too: their numbers mean other things. Arguments are compared in the 32 bits that the
kernel itself looks at, so that nothing hides in the upper half of a register.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from errno import ENOSYS, EPERM

from system_calls import syscalls  # type: ignore[import-untyped]

from services.executor.adapters.sandbox.seccomp.allowlist import (
    AF_UNIX,
    ALLOWED,
    CLONE_NAMESPACE_FLAGS,
    ENOSYS_CALLS,
    KILL_CALLS,
    PERSONALITIES,
    TERMINAL_INPUT_IOCTLS,
)

ALLOW = 0x7FFF0000
KILL = 0x80000000
_ERRNO = 0x00050000
REFUSE = _ERRNO | EPERM
ABSENT = _ERRNO | ENOSYS

_LOAD, _JUMP, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
_FAR = 255
_X32 = 0x40000000

Instruction = tuple[int, int, int, int]
"""Operation, how far to jump if true, if false, and its operand."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A machine that the filter can be made for."""

    name: str
    """As the table of numbers calls it."""
    audit: int
    """As the kernel calls it."""
    has_x32: bool = False


ARCHITECTURES = {
    "x86_64": Architecture("x86_64", 0xC000003E, has_x32=True),
    "aarch64": Architecture("arm64", 0xC00000B7),
}


def compile_filter(machine: str | None = None, *, without: frozenset[str] = frozenset()) -> bytes:
    """Return the filter for a machine, this one unless told, as bytes that the kernel takes. `without` names calls of the list that
    are refused all the same. Raises KeyError for a machine that it cannot be made for."""
    architecture = ARCHITECTURES[machine or os.uname().machine]
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture.audit),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if architecture.has_x32:
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, KILL)]
    code += _search(_ranges(syscalls().load_arch_table(architecture.name), ALLOWED - without))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _any_of(offset: int, values: Sequence[int], then: int, otherwise: int) -> list[Instruction]:
    """Compare one argument with some values."""
    tests = [(_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [(_LOAD, 0, 0, offset), *tests, (_RETURN, 0, 0, otherwise), (_RETURN, 0, 0, then)]


_EXAMINED: dict[str, list[Instruction]] = {
    "socket": _any_of(_FIRST, (AF_UNIX,), ALLOW, REFUSE),
    "socketpair": _any_of(_FIRST, (AF_UNIX,), ALLOW, REFUSE),
    "ioctl": _any_of(_SECOND, TERMINAL_INPUT_IOCTLS, REFUSE, ALLOW),
    "personality": _any_of(_FIRST, PERSONALITIES, ALLOW, REFUSE),
    "clone": [
        (_LOAD, 0, 0, _FIRST),
        (_ANY_BIT, 0, 1, CLONE_NAMESPACE_FLAGS),
        (_RETURN, 0, 0, REFUSE),
        (_RETURN, 0, 0, ALLOW),
    ],
}
"""Calls whose arguments decide."""


def _verdict(name: str | None, allowed: frozenset[str]) -> list[Instruction]:
    if name in _EXAMINED:
        return _EXAMINED[name]
    if name is None or name in ENOSYS_CALLS:
        return [(_RETURN, 0, 0, ABSENT)]
    if name in KILL_CALLS:
        return [(_RETURN, 0, 0, KILL)]
    return [(_RETURN, 0, 0, ALLOW if name in allowed else REFUSE)]


def _ranges(numbers: dict[str, int], allowed: frozenset[str]) -> list[tuple[int, list[Instruction]]]:
    """Cut all numbers into runs with the same verdict, each as its first number and what to do."""
    names = {number: name for name, number in numbers.items()}
    runs: list[tuple[int, list[Instruction]]] = []
    for number in range(max(names) + 2):
        verdict = _verdict(names.get(number), allowed)
        if not runs or runs[-1][1] != verdict:
            runs.append((number, verdict))
    return runs


def _search(runs: Sequence[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Find the run of a number by halving, so that a call costs a handful of steps rather than hundreds."""
    if len(runs) == 1:
        return runs[0][1]
    middle = len(runs) // 2
    below, above = _search(runs[:middle]), _search(runs[middle:])
    start = runs[middle][0]
    if len(below) <= _FAR:
        return [(_AT_LEAST, len(below), 0, start), *below, *above]
    return [(_AT_LEAST, 0, 1, start), (_JUMP, 0, 0, len(below)), *below, *above]
