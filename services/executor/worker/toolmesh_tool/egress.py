"""Network access for tools whose manifest names hosts: a connection through the egress proxy."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket

SOCKET = "/run/egress.sock"
_MAX_RESPONSE_BYTES = 8192


class UnreachableError(OSError):
    """The host cannot be reached: the manifest does not name it, or it did not response."""


def connect(host: str, port: int, *, timeout: float | None = None) -> socket:
    """Return a TCP connection to a host of the manifest; the tool adds TLS itself. Raises UnreachableError."""
    # Imported here: most tools use no network, and every import slows down a cold start.
    import socket as sockets

    if any(letter in host for letter in "\r\n ") or not 0 < int(port) < 65536:
        raise UnreachableError("invalid host or port")
    connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect(SOCKET)
        name = f"[{host}]:{int(port)}" if ":" in host else f"{host}:{int(port)}"
        connection.sendall(f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode("ascii"))
        response = _read_head(connection)
    except (OSError, ValueError) as cause:
        connection.close()
        raise UnreachableError("the egress proxy is not reachable") from cause
    if not response.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
        connection.close()
        raise UnreachableError(response.split(b"\r\n", 1)[0].decode("latin-1"))
    return connection


def _read_head(connection: socket) -> bytes:
    """Read the response head byte by byte: the bytes after it belong to the tool."""
    response = b""
    while not response.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte or len(response) >= _MAX_RESPONSE_BYTES:
            raise ValueError("invalid response")
        response += byte
    return response
