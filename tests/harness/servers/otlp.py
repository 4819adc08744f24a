"""A receiver of telemetry that keeps every byte it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc


class OtlpReceiver(grpc.GenericRpcHandler):
    """Takes traces, metrics and logs alike, and answers that all is well."""

    def __init__(self) -> None:
        self.received: list[tuple[str, bytes]] = []

    def service(self, handler_call_details: Any) -> Any:
        """Keep the message of any call, as it came."""
        method = str(handler_call_details.method)

        def keep(message: bytes, context: Any) -> bytes:
            self.received.append((method, message))
            return b""

        return grpc.unary_unary_rpc_method_handler(keep)

    def of(self, kind: str) -> bytes:
        """Return everything that was sent to the services of a kind: `trace`, `metrics`."""
        return b"\n".join(message for method, message in self.received if f".{kind}." in method)


@contextmanager
def running_otlp() -> Iterator[tuple[OtlpReceiver, str]]:
    """Run a receiver; yield it with its address."""
    receiver = OtlpReceiver()
    server = grpc.server(ThreadPoolExecutor(4), handlers=[receiver], options=[("grpc.so_reuseport", 0)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield receiver, f"http://127.0.0.1:{port}"
    finally:
        server.stop(None)
