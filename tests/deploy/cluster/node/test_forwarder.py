"""Connections are forwarded both ways until either side ends."""

from __future__ import annotations

import socket
import threading

from deploy.cluster.node.forwarder import start_forwarder

PATIENCE = 60


def echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data.upper())


def test_bytes_go_both_ways_and_the_end_is_passed_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        listener = socket.create_server(("127.0.0.1", 0))
        start_forwarder(listener, *server.getsockname())
        with socket.create_connection(listener.getsockname(), timeout=PATIENCE) as client:
            client.sendall(b"hello")
            assert client.recv(5) == b"HELLO"
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    listener = socket.create_server(("127.0.0.1", 0))
    start_forwarder(listener, *address)
    with socket.create_connection(listener.getsockname(), timeout=PATIENCE) as client:
        assert client.recv(1) == b""
