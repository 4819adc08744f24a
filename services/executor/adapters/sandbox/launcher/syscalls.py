"""Requests to the kernel that Python's own library has no word for. Standard library only: the launcher loads this."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

_NEW_MOUNTS = 0x00020000
_BIND, _RECURSIVE, _SLAVE = 0x1000, 0x4000, 0x80000
_NO_SETUID, _NO_DEVICES, _NO_PROGRAMS = 0x2, 0x4, 0x8
_SUBREAPER = 36


def _ask(result: int, path: str = "") -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path or None)


def become_subreaper() -> None:
    """Become the parent of every descendant whose own parent ends, so that each can be waited for."""
    _ask(_libc.prctl(_SUBREAPER, 1, 0, 0, 0))


def unshare_mounts() -> None:
    """Leave the host's list of mounts for a copy: what is mounted from now on exists for this process and its children only."""
    _ask(_libc.unshare(_NEW_MOUNTS))
    _ask(_libc.mount(None, b"/", None, ctypes.c_ulong(_RECURSIVE | _SLAVE), None))


def mount_tmpfs(path: str) -> None:
    """Mount an empty file system that lives in memory."""
    flags = ctypes.c_ulong(_NO_SETUID | _NO_DEVICES | _NO_PROGRAMS)
    _ask(_libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", flags, b"mode=0711,size=1m"), path)


def bind_mount(source: str, target: str) -> None:
    """Show a file or folder, with all that is mounted in it, in a second place."""
    flags = ctypes.c_ulong(_BIND | _RECURSIVE)
    _ask(_libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None), source)
