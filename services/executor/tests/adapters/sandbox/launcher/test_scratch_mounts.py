"""The process that holds the mounts, asked over its socket."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from services.executor.adapters.sandbox.scratch import bounded_scratch


def asked(folder: Path, *requests: dict[str, Any]) -> list[bool]:
    """Send requests to a new process, close the socket, and return which of its answers are errors."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    arguments = [str(theirs.fileno()), str(folder), str(bounded_scratch._ROOT)]
    with ours:
        with theirs:
            command = [sys.executable, "-I", "-S", "-c", bounded_scratch._MAIN, *arguments]
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        answers = [ours.recv(4096)]
        for request in requests:
            ours.send(json.dumps(request).encode())
            answers.append(ours.recv(4096))
    assert process.wait(20) == 0
    return [bool(json.loads(answer)["error"]) for answer in answers]


def test_an_error_ends_only_its_own_request(tmp_path: Path) -> None:
    mount = {"do": "mount", "name": "a", "bytes": 1 << 20, "entries": 10}
    unmount = {"do": "unmount", "name": "a"}
    assert asked(tmp_path, unmount, mount, mount, unmount) == [False, True, False, True, False]
    assert list(tmp_path.iterdir()) == []
