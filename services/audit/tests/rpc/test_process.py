"""The service as a process of its own, killed without warning."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc

from libs.common.rpc.client import channel_to
from libs.common.runtime.settings import Address
from services.audit.tests.database import check_log
from services.audit.tests.replicas import append
from services.audit.tests.sample import a_record
from tests.harness.stores import free_port

Launch = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def launch(audit_environment: dict[str, str], repository: Path) -> Iterator[Launch]:
    """Return a function that starts the process, always on the same port."""
    audit_environment["TOOLMESH_LISTEN"] = f"127.0.0.1:{free_port()}"
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOOLMESH_")}
        command = [sys.executable, "-m", "services.audit"]
        started.append(subprocess.Popen(command, cwd=repository, env={**inherited, **audit_environment}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def channel(environment: dict[str, str], pki: Any) -> grpc.aio.Channel:
    identity = pki.of("executor")
    files = SimpleNamespace(tls_cert=identity.cert, tls_key=identity.key, tls_ca=pki.ca)
    return channel_to("audit", Address("127.0.0.1", int(environment["TOOLMESH_LISTEN"].split(":")[1])), files)


class Writing:
    """Notes what was acknowledged, and when it was enough."""

    def __init__(self) -> None:
        self.acknowledged: list[str] = []
        self.enough = asyncio.Event()

    async def until_cut(self, stub: Any) -> None:
        """Append batch after batch until the process is gone."""
        call = stub.AppendRecords()
        try:
            for number in range(1, 100_000):
                batch = [a_record() for _ in range(5)]
                await call.write(pb.AppendRecordsRequest(batch=number, records=batch))
                if await call.read() is grpc.aio.EOF:
                    return
                self.acknowledged += [record.record_id for record in batch]
                if len(self.acknowledged) >= 200:
                    self.enough.set()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return


async def test_a_killed_process_loses_nothing_that_it_acknowledged(
    launch: Launch, audit_environment: dict[str, str], pki: Any
) -> None:
    process, writing = launch(), Writing()
    async with channel(audit_environment, pki) as connected:
        streams = [asyncio.ensure_future(writing.until_cut(rpc.AuditServiceStub(connected))) for _ in range(4)]
        await asyncio.wait_for(writing.enough.wait(), 60)
        process.send_signal(signal.SIGKILL)
        await asyncio.gather(*streams)
    launch()
    async with channel(audit_environment, pki) as connected:
        [last] = await append(rpc.AuditServiceStub(connected), [[a_record()]])
    stored = check_log(audit_environment["TOOLMESH_DATABASE_URL"], last.last_sequence + 1)
    assert set(writing.acknowledged) <= set(stored)


async def test_a_process_that_is_asked_to_end_does_so_in_order(
    launch: Launch, audit_environment: dict[str, str], pki: Any
) -> None:
    process = launch()
    async with channel(audit_environment, pki) as connected:
        await append(rpc.AuditServiceStub(connected), [[a_record()]])
    process.terminate()
    assert await asyncio.to_thread(process.wait, 60) == 0
