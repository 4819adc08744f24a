"""An ordinary HTTP proxy inside the sandbox: a port of its loopback that leads to the egress proxy's socket.

HTTP libraries know proxies by `HTTPS_PROXY`, and none knows a proxy on a unix socket. The sandbox has no network but
its own loopback, so nothing outside can use the port. This module is also run as source text, before a program.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from selectors import BaseSelector
    from socket import socket
    from typing import Any

PORT = 3128
_CHUNK_BYTES = 65536
_BACKLOG = 64
_ANSWER_SECONDS = 1.0


def start_bridge(egress: str) -> Bridge:
    """Listen, and relay in a process of its own."""
    # Imported here: most tools use no network, and every import slows down a cold start.
    import socket

    listener = socket.create_server(("127.0.0.1", PORT), backlog=_BACKLOG)
    ours, theirs = socket.socketpair()
    if os.fork():
        listener.close()
        theirs.close()
        return Bridge(ours)
    try:
        _detach(listener.fileno(), theirs.fileno())
        _serve(listener, theirs, egress)
    finally:
        os._exit(1)


class Bridge:
    """The process that relays."""

    def __init__(self, control: socket) -> None:
        self._control = control

    def is_alive(self) -> bool:
        """Return whether it still works. One that was killed answers nothing, even before it has ended."""
        asked = os.urandom(8)
        try:
            self._control.settimeout(_ANSWER_SECONDS)
            self._control.sendall(asked)
            # What a tool wrote to the descriptor comes back, too, and is not what was asked.
            return self._control.recv(_CHUNK_BYTES) == asked
        except OSError:
            return False


def _detach(*kept: int) -> None:
    """Leave the pipes of the process to it, so that they end with it."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for first, last in zip((2, *sorted(kept)), (*sorted(kept), 1024), strict=True):
        os.closerange(first + 1, last)


def _serve(listener: socket, control: socket, egress: str) -> None:
    import selectors

    selector = selectors.DefaultSelector()
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ)
    selector.register(control, selectors.EVENT_READ)
    while True:
        for key, events in selector.select():
            if key.fileobj is listener:
                _accept(listener, egress, selector)
            elif key.fileobj is control:
                _answer(control, selector)
            else:
                key.data.advance(key.fileobj, events)


def _answer(control: socket, selector: BaseSelector) -> None:
    """Send back what was asked. A program that took the place of its starter asks nothing."""
    if asked := control.recv(_CHUNK_BYTES):
        control.send(asked)
    else:
        selector.unregister(control)


def _accept(listener: socket, egress: str, selector: BaseSelector) -> None:
    import socket

    try:
        client, _ = listener.accept()
    except OSError:
        return
    proxy = socket.socket(socket.AF_UNIX)
    try:
        proxy.setblocking(False)
        proxy.connect(egress)
    except OSError:
        client.close()
        proxy.close()
        return
    client.setblocking(False)
    _Tunnel(client, proxy, selector)


class _Tunnel:
    """Two connected sockets. What one end has sent is read only after the former bytes went on to the other."""

    def __init__(self, client: socket, proxy: socket, selector: BaseSelector) -> None:
        self._other = {client: proxy, proxy: client}
        self._pending: dict[Any, bytes] = {client: b"", proxy: b""}
        """What is still to be written to each."""
        self._ended: set[Any] = set()
        """The ends from which nothing more comes."""
        self._selector = selector
        self._watch()

    def advance(self, end: Any, events: int) -> None:
        """Read or write what an end is ready for."""
        if end not in self._pending:
            # The other end failed in the same round.
            return
        try:
            if events & 2:
                self._write(end)
            if events & 1:
                self._read(end)
        except BlockingIOError:
            pass
        except OSError:
            self._close()
            return
        self._watch()

    def _read(self, end: Any) -> None:
        other, data = self._other[end], end.recv(_CHUNK_BYTES)
        self._pending[other] += data
        if data:
            self._write(other)
            return
        self._ended.add(end)
        self._finish(other)

    def _write(self, end: Any) -> None:
        if self._pending[end]:
            sent = end.send(self._pending[end])
            self._pending[end] = self._pending[end][sent:]
        self._finish(end)

    def _finish(self, end: Any) -> None:
        """Pass the end of one side on, once all of its bytes were."""
        if self._other[end] in self._ended and not self._pending[end]:
            import socket

            end.shutdown(socket.SHUT_WR)

    def _watch(self) -> None:
        if len(self._ended) == 2 and not any(self._pending.values()):
            self._close()
            return
        for end, other in self._other.items():
            reads = end not in self._ended and not self._pending[other]
            events = (1 if reads else 0) | (2 if self._pending[end] else 0)
            self._select(end, events)

    def _select(self, end: Any, events: int) -> None:
        known = self._selector.get_map().get(end)
        if known is None:
            if events:
                self._selector.register(end, events, self)
        elif not events:
            self._selector.unregister(end)
        elif known.events != events:
            self._selector.modify(end, events, self)

    def _close(self) -> None:
        for end in self._pending:
            self._select(end, 0)
            end.close()
        self._pending.clear()
