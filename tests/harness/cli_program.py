"""The command line of tests: a process for each command, forked from one that has loaded the command line.

A start of the interpreter and its imports cost more than most commands. The code and its process boundary are those of
the program; what is not tested here is how it starts, which `localmesh/tests` and `make test-docs` do.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

import typer
from toolmesh_sdk.cli.main import build, run

_REQUEST_BYTES = 1 << 20
_STARTING = threading.Lock()
_LOADED = (
    "grpc", "http.client", "rich.console", "rich.text", "toolmesh_sdk.admin", "toolmesh_sdk.client",
    "toolmesh_sdk.cli.views.documents", "toolmesh_sdk.cli.views.output", "localmesh.state.state",
)  # fmt: skip


def run_command(
    arguments: list[str], environment: dict[str, str], timeout: float, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `toolmesh` with these arguments, this environment and standard input, and return what it printed."""
    with tempfile.TemporaryFile() as given_file, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given_file.write(given.encode())
        given_file.seek(0)
        request = {"arguments": arguments, "environment": environment, "folder": str(Path.cwd())}
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(timeout)
            with _STARTING:
                connection.connect(_server())
            socket.send_fds(
                connection, [json.dumps(request).encode()], [file.fileno() for file in (given_file, out, err)]
            )
            pid, status = int(connection.recv(64) or 0), -signal.SIGKILL
            try:
                status = int(connection.recv(64) or status)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, timeout) from None
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(arguments, status, *texts)


@cache
def _server() -> str:
    """Start the process that forks, which ends with this one, and return the address of its socket."""
    address = f"\0toolmesh-cli-{os.getpid()}-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(64)
        # Its other end stays open as long as this process.
        reader, _ = os.pipe()
        command = [sys.executable, "-m", "tests.harness.cli_program", str(listener.fileno()), str(reader)]
        environment = {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"}
        subprocess.Popen(command, pass_fds=(listener.fileno(), reader), env=environment)
        os.close(reader)
    return address


def _serve(listener: socket.socket, lifeline: int) -> None:
    _load()
    # Children are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while lifeline not in select.select([listener.fileno(), lifeline], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _become(connection)
        connection.close()


def _load() -> None:
    """Load what most commands load. gRPC starts its threads with the first channel, so none is forked."""
    for name in _LOADED:
        importlib.import_module(name)
    # Typer loads a part of itself with the first command.
    with contextlib.redirect_stdout(io.StringIO()):
        typer.main.get_command(build())(["version", "--json"], standalone_mode=False)
    gc.collect()
    gc.freeze()


def _become(connection: socket.socket) -> None:
    """Run the command of a request in this process, and end it."""
    data, descriptors, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 3)
    connection.send(str(os.getpid()).encode())
    request = json.loads(data)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for descriptor, number in zip(descriptors, (0, 1, 2), strict=True):
        os.dup2(descriptor, number)
    status = 1
    try:
        status = _run(request["arguments"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send(str(status).encode())
        os._exit(0)


def _run(arguments: list[str]) -> int:
    # Some commands write down where the program is.
    sys.argv = [str(Path(sys.executable).parent / "toolmesh"), *arguments]
    try:
        run()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
