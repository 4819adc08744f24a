"""System calls that the standard library does not wrap: prctl, unshare, setns, mount and umount."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 0x2, 0x4, 0x8, 0x20
_MNT_DETACH = 2
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


def mount_bounded_tmpfs(path: str, max_bytes: int, max_entries: int) -> None:
    """Mount a tmpfs for its owner alone, which holds so many bytes and entries, deleted open files included."""
    flags, options = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV), f"mode=0700,size={max_bytes},nr_inodes={max_entries}"
    _check(_libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", flags, options.encode()), path)


def resize_tmpfs(path: str, max_bytes: int) -> None:
    """Change the size of a mounted tmpfs. Raises OSError if it already holds more."""
    flags = ctypes.c_ulong(_MS_REMOUNT | _MS_NOSUID | _MS_NODEV)
    _check(_libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", flags, f"size={max_bytes}".encode()), path)


def detach_mount(path: str) -> None:
    """Unmount; the file system ends with its last user."""
    _check(_libc.umount2(os.fsencode(path), _MNT_DETACH), path)


def own_mount_namespace() -> None:
    """Enter a new mount namespace with the right to mount. An ordinary user gets it from a new user namespace."""
    user, group = os.geteuid(), os.getegid()
    if user != 0:
        _check(_libc.unshare(_CLONE_NEWUSER))
        # The user stays the same and is not root inside, so that a program that it executes has no capabilities.
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
                file.write(text)
    unshare_mounts()


def join_mount_namespace(pid: int) -> None:
    """Enter the mount namespace of a process that called `own_mount_namespace`."""
    for name, kind in (("user", _CLONE_NEWUSER), ("mnt", _CLONE_NEWNS)):
        if name == "user" and os.geteuid() == 0:
            continue
        descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(descriptor, kind))
        finally:
            os.close(descriptor)
