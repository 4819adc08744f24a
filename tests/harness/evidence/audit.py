"""Audit as processes that can be killed and started again, and writers that do not give up."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import httpx
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc

from libs.common.rpc.client import channel_to
from libs.common.runtime.settings import Address
from tests.harness.stores import free_port

ROOT = Path(__file__).resolve().parents[3]
# So many batches may be under way on a stream before the first is acknowledged.
WINDOW = 4


class AuditProcess:
    """One replica, always on the same ports."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self.port, self._ops = free_port(), free_port()
        own = {"TOOLMESH_LISTEN": f"127.0.0.1:{self.port}", "TOOLMESH_OPS_LISTEN": f"127.0.0.1:{self._ops}"}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOOLMESH_")}
        self._environment = {**inherited, **environment, **own}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns at once."""
        with self._log.open("ab") as output:
            command = [sys.executable, "-m", "services.audit"]
            self._process = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=output, stderr=output)

    async def ready(self) -> None:
        """Return when it takes calls."""
        async with asyncio.timeout(60), httpx.AsyncClient() as client:
            while not await self._answers(client):  # noqa: ASYNC110  (another process has no event to set)
                await asyncio.sleep(0.02)

    async def _answers(self, client: httpx.AsyncClient) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-4000:]
        try:
            return (await client.get(f"http://127.0.0.1:{self._ops}/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    async def metric(self, name: str) -> float:
        """Return one of its metrics."""
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"http://127.0.0.1:{self._ops}/metrics")).text
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " "))

    def kill(self) -> None:
        """End it without warning."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Make is_held that nothing is left of it."""
        if self._process is not None and self._process.poll() is None:
            self.kill()


def audit_channel(pki: Any, name: str, port: int) -> grpc.aio.Channel:
    """Open a channel to a replica with the certificate of `name`."""
    identity = pki.of(name)
    files = SimpleNamespace(tls_cert=identity.cert, tls_key=identity.key, tls_ca=pki.ca)
    return channel_to("audit", Address("127.0.0.1", port), files)


@dataclass
class Batch:
    """Some records, and the place of the last once they are acknowledged."""

    records: list[record_pb.AuditRecord]
    last_sequence: int = -1


@dataclass
class Writer:
    """A peer that sends its batches in order, and those that were not acknowledged again when its stream ends; then
    to the
    next replica, if there are several."""

    name: str
    channels: Sequence[grpc.aio.Channel]
    batches: Sequence[Batch]
    acknowledged: int = 0
    """Records, counted as they are acknowledged."""
    streams: int = 0
    held: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A client that holds it keeps the writer from sending more."""
    _waiting: deque[Batch] = field(default_factory=deque)

    async def write_all(self) -> None:
        """Return when everything is acknowledged."""
        self._waiting = deque(self.batches)
        while self._waiting:
            channel = self.channels[self.streams % len(self.channels)]
            self.streams += 1
            try:
                await self._converse(rpc.AuditServiceStub(channel).AppendRecords(wait_for_ready=True))
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                continue

    async def _converse(self, call: Any) -> None:
        written = read = 0
        while self._waiting:
            while written - read < min(WINDOW, len(self._waiting)):
                records = self._waiting[written - read].records
                written += 1
                async with self.held:
                    await call.write(pb.AppendRecordsRequest(batch=written, records=records))
            answer = await call.read()
            if answer is grpc.aio.EOF:
                return
            read += 1
            assert answer.batch == read
            self._waiting[0].last_sequence = answer.last_sequence
            self.acknowledged += len(self._waiting.popleft().records)
        await call.done_writing()
