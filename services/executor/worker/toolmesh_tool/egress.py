"""The one way out of the sandbox, for tools whose manifest names hosts."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket

SOCKET = "/run/egress.sock"
_LONGEST_ANSWER = 8192


class UnreachableError(OSError):
    """There is no way to the host: the manifest does not name it, or it did not answer."""


def connect(host: str, port: int, *, timeout: float | None = None) -> socket:
    """Return a connection to a host that the manifest names. TLS is the tool's own business, on top of it. Raises UnreachableError."""
    # Imported here: most tools never go out, and every import is paid for at each cold start.
    import socket as sockets

    if any(letter in host for letter in "\r\n ") or not 0 < int(port) < 65536:
        raise UnreachableError("not a host and a port")
    way = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    try:
        way.settimeout(timeout)
        way.connect(SOCKET)
        name = f"[{host}]:{int(port)}" if ":" in host else f"{host}:{int(port)}"
        way.sendall(f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode("ascii"))
        answer = _head(way)
    except (OSError, ValueError) as cause:
        way.close()
        raise UnreachableError("no way out") from cause
    if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
        way.close()
        raise UnreachableError(answer.split(b"\r\n", 1)[0].decode("latin-1"))
    return way


def _head(way: socket) -> bytes:
    """Read up to the end of the answer's head, byte by byte: what follows belongs to the tool."""
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        byte = way.recv(1)
        if not byte or len(answer) >= _LONGEST_ANSWER:
            raise ValueError("not an answer")
        answer += byte
    return answer
