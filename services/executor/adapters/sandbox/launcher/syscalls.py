"""System calls that the standard library does not wrap: prctl, unshare and mount."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 0x2, 0x4, 0x8
_PR_SET_CHILD_SUBREAPER = 36


def _check(result: int, path: str = "") -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path or None)


def become_subreaper() -> None:
    """Become the parent of orphaned descendants, so that each can be waited for."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def unshare_mounts() -> None:
    """Enter a new mount namespace: later mounts exist for this process and its children only."""
    _check(_libc.unshare(_CLONE_NEWNS))
    _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))


def mount_tmpfs(path: str) -> None:
    """Mount an empty tmpfs."""
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _check(_libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", flags, b"mode=0711,size=1m"), path)


def bind_mount(source: str, target: str) -> None:
    """Bind-mount a file or directory recursively."""
    flags = ctypes.c_ulong(_MS_BIND | _MS_REC)
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None), source)
