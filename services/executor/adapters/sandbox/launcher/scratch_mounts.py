"""Holds a mount namespace in which every run has a tmpfs of limited size for the copies of its volumes.

A process of its own, so that it works for root and for an ordinary user, and the mounts exist for the executor and the
sandboxes that join the namespace, for no other process of the machine. They end with this process, which ends with the
executor.

It exchanges JSON messages over one socket. In: `mount`, `resize` or `unmount` with the name of a folder. Out: `error`,
empty if it was done.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any

from services.executor.adapters.sandbox.launcher import syscalls

MESSAGE_BYTES = 4096


def main() -> None:
    """Serve on the socket whose descriptor is the first argument, below the folder that is the second."""
    control, folder = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
    # A signal to the process group is meant for the executor; this process exits after it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        syscalls.own_mount_namespace()
    except OSError as error:
        control.send(_message(error))
        return
    control.send(_message(None))
    while request := control.recv(MESSAGE_BYTES):
        try:
            _execute(folder, json.loads(request))
            control.send(_message(None))
        except OSError as error:
            control.send(_message(error))


def _execute(folder: str, request: dict[str, Any]) -> None:
    path = f"{folder}/{request['name']}"
    match request["do"]:
        case "mount":
            os.mkdir(path, 0o700)  # noqa: PTH102
            syscalls.mount_bounded_tmpfs(path, request["bytes"], request["entries"])
        case "resize":
            syscalls.resize_tmpfs(path, request["bytes"])
        case "unmount":
            syscalls.detach_mount(path)
            os.rmdir(path)  # noqa: PTH106


def _message(error: OSError | None) -> bytes:
    return json.dumps({"error": "" if error is None else f"{type(error).__name__}: {error}"[:500]}).encode()
