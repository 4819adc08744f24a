"""A gRPC server with reflection on grpclib, which shares no code with grpcio.

Its arguments are the folder of its packages and its port.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

sys.path.insert(0, sys.argv[1])

from grpclib.health.v1.health_grpc import HealthBase  # type: ignore[import-not-found]
from grpclib.health.v1.health_pb2 import HealthCheckResponse  # type: ignore[import-not-found]
from grpclib.reflection.service import ServerReflection  # type: ignore[import-not-found]
from grpclib.server import Server  # type: ignore[import-not-found]


class Health(HealthBase):  # type: ignore[misc]
    """Is well, and says so three times to those who watch."""

    async def Check(self, stream: Any) -> None:
        await stream.recv_message()
        await stream.send_message(HealthCheckResponse(status=HealthCheckResponse.SERVING))

    async def Watch(self, stream: Any) -> None:
        await stream.recv_message()
        for _ in range(3):
            await stream.send_message(HealthCheckResponse(status=HealthCheckResponse.SERVING))


async def main() -> None:
    server = Server(ServerReflection.extend([Health()]))
    await server.start("127.0.0.1", int(sys.argv[2]))
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(main())
