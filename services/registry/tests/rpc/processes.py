"""Registries as real processes that tests can kill."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import grpc.aio
from toolmesh.registry.v1 import registry_service_pb2_grpc as rpc

from libs.common.rpc.client import channel_to
from libs.common.runtime.settings import Address
from tests.harness.stores import free_port


@dataclass
class RegistryProcess:
    """A running process and a stub for it as the operator."""

    process: asyncio.subprocess.Process
    channel: grpc.aio.Channel
    stub: Any

    @classmethod
    async def start(cls, environment: dict[str, str], pki: Any) -> RegistryProcess:
        """Start a process and wait until it accepts calls."""
        port = free_port()
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TOOLMESH_")}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.registry",
            env={**inherited, **environment, "TOOLMESH_LISTEN": f"127.0.0.1:{port}", "TOOLMESH_LOG_LEVEL": "error"},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        identity = pki.of("operator")
        files = SimpleNamespace(tls_cert=identity.cert, tls_key=identity.key, tls_ca=pki.ca)
        channel = channel_to("registry", Address("127.0.0.1", port), files)
        await asyncio.wait_for(channel.channel_ready(), 60)
        return cls(process, channel, rpc.RegistryServiceStub(channel))

    async def kill(self) -> None:
        """Kill the process, as a power cut would. Calls in flight fail."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def stop(self) -> None:
        """Stop the process gracefully, if it still runs."""
        if self.process.returncode is None:
            self.process.terminate()
            await self.process.wait()
        await self.channel.close()
