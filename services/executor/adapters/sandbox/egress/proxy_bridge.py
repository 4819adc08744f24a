"""Gives a sandboxed process an ordinary HTTP proxy: a port inside its sandbox that leads to the egress proxy."""

from __future__ import annotations

from pathlib import Path

from services.executor.adapters.sandbox.rootfs import EGRESS_SOCKET, interpreter_path
from services.executor.worker.toolmesh_tool import bridge

_URL = f"http://127.0.0.1:{bridge.PORT}"
PROXY_ENVIRONMENT = {name: _URL for proxied in ("HTTP_PROXY", "HTTPS_PROXY") for name in (proxied, proxied.lower())}
# The bridge is a child of the program, which takes the place of the process that started it. Python ignores the
# signals, and a program would inherit that.
_START = f"""
import signal, sys
start_bridge({EGRESS_SOCKET!r})
for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(ignored, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
_SOURCE = Path(bridge.__file__).read_text(encoding="utf-8") + _START


def bridged_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command that runs another one beside the bridge. A worker of Python functions starts its own."""
    return (interpreter_path(), "-I", "-S", "-B", "-c", _SOURCE, *command)
