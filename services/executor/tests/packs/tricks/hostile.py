"""Hostile or careless tools."""

import ctypes
import fcntl
import os
import signal
import subprocess
import threading
from pathlib import Path

from toolmesh_tool import connect

TOKEN = os.urandom(16).hex()


def exits(arguments, call):
    """Exit without a response."""
    os._exit(arguments["code"])


def crashes(arguments, call):
    """Access invalid memory."""
    ctypes.string_at(0)


def forges(arguments, call):
    """Write forged frames to every open descriptor."""
    frame = b'{"id":"forged","value":1,"notes":{}}'
    for descriptor in range(3, 30):
        try:
            os.write(descriptor, len(frame).to_bytes(4, "big") + frame)
        except OSError:
            continue
    return {"token": TOKEN}


def floods(arguments, call):
    """Announce an oversized frame."""
    for descriptor in range(3, 30):
        try:
            os.write(descriptor, b"\xff\xff\xff\xff" + b"x" * 1000)
        except OSError:
            continue
    signal.pause()


def devours(arguments, call):
    """Allocate memory until killed."""
    found = []
    while True:
        found.append(bytearray(b"x" * (8 << 20)))


def catches_memory(arguments, call):
    """Allocate too much memory in one step."""
    return len(bytearray(1 << 60))


def burns(arguments, call):
    """Use CPU time until killed."""
    while True:
        pass


def tracer(arguments, call):
    """Make a forbidden system call."""
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    return {"token": TOKEN}


def looks(arguments, call):
    """Return whether a path can be read."""
    try:
        return {"read": Path(arguments["path"]).read_bytes()[:20].decode("latin-1")}
    except OSError as error:
        return {"refused": type(error).__name__}


def calls_out(arguments, call):
    """Fetch something from a host."""
    try:
        way = connect(arguments["host"], arguments["port"], timeout=5)
    except OSError:
        return {"reached": False}
    way.sendall(b"GET / HTTP/1.0\r\n\r\n")
    return {"reached": way.recv(100).startswith(b"HTTP/")}


def writes(arguments, call):
    """Change a volume."""
    folder = Path("/volumes") / arguments["volume"]
    for step in arguments["steps"]:
        _step(folder / step["path"], step)
    return {"token": TOKEN}


def _step(path, step):
    match step["do"]:
        case "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.get("text", ""))
        case "remove":
            path.unlink()
        case "remove_folder":
            path.rmdir()
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(step["to"])
        case "pipe":
            os.mkfifo(path)
        case "setuid":
            path.write_text("#!/bin/sh\n")
            path.chmod(0o4777)
        case "close":
            path.chmod(0)
        case "hide":
            # The same length and the same times as before.
            before = path.stat()
            path.write_text(step["text"])
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        case "nest":
            nest(path, step["name"], step["times"])
        case "fill":
            fill(path, step["bytes"], step.get("stays", False))
        case "unlink":
            hoard(path, step["files"])
        case "fail":
            raise ValueError("after writing")


def hoard(path, files):
    """Hold open files of one MiB that have no name any more."""
    held = []
    for _ in range(files):
        held.append(path.open("wb"))
        path.unlink()
        held[-1].write(b"x" * (1 << 20))
        held[-1].flush()


def fill(path, size, stays):
    """Write many files that are each within the file limit."""
    nth = 0
    while size > 0:
        (path / f"{nth}").write_bytes(b"x" * (1 << 20))
        nth, size = nth + 1, size - (1 << 20)
    if stays:
        signal.pause()


def nest(path, name, times):
    """Nest directories beyond PATH_MAX."""
    os.chdir(path)
    for _ in range(times):
        Path(name).mkdir()
        os.chdir(name)


def locks(arguments, call):
    """Lock every file of a volume and stay."""
    folder = Path("/volumes") / arguments["volume"]
    held = []
    for path in (folder, *folder.rglob("*")):
        for mode in (os.O_RDONLY, os.O_WRONLY):
            try:
                descriptor = os.open(path, mode)
            except OSError:
                continue
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held.append(descriptor)
            break
    signal.pause()


def children(arguments, call):
    """Start too many processes."""
    started = [subprocess.Popen(["/usr/bin/sleep", "1000"]) for _ in range(1000)]
    return len(started)


def threads(arguments, call):
    """Start too many threads, and end them again."""
    done = threading.Event()
    try:
        for _ in range(1000):
            threading.Thread(target=done.wait).start()
    finally:
        done.set()


def grows(arguments, call):
    """Exceed the file size limit."""
    with Path("/tmp/large").open("wb") as file:
        while True:
            file.write(b"x" * (1 << 20))


def hoards(arguments, call):
    """Fill the scratch space with small files."""
    nth = 0
    while True:
        Path(f"/tmp/{nth}").write_bytes(b"x" * (1 << 16))
        nth += 1
