"""Gives a confined server an ordinary HTTP proxy: a port inside its sandbox that leads to the egress proxy's socket.

Programs know proxies by `HTTPS_PROXY`, and none knows a proxy on a unix socket. The sandbox has no network but its own
loopback, so nothing else can use the port.
"""

from __future__ import annotations

from services.executor.adapters.sandbox.rootfs import EGRESS_SOCKET, interpreter_path

_PORT = 3128
_URL = f"http://127.0.0.1:{_PORT}"
PROXY_ENVIRONMENT = {name: _URL for proxied in ("HTTP_PROXY", "HTTPS_PROXY") for name in (proxied, proxied.lower())}
# Runs inside the sandbox with the standard library alone: it relays in threads, and the server is its child.
_BRIDGE = f"""
import socket, subprocess, sys, threading
def copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass
def serve(client):
    proxy = socket.socket(socket.AF_UNIX)
    try:
        proxy.connect({EGRESS_SOCKET!r})
    except OSError:
        client.close()
        return
    back = threading.Thread(target=copy, args=(proxy, client), daemon=True)
    back.start()
    copy(client, proxy)
    back.join()
    client.close()
    proxy.close()
def accept(listener):
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client,), daemon=True).start()
listener = socket.create_server(("127.0.0.1", {_PORT}))
threading.Thread(target=accept, args=(listener,), daemon=True).start()
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""


def bridged_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command that runs another one beside the bridge."""
    return (interpreter_path(), "-I", "-S", "-B", "-c", _BRIDGE, *command)
