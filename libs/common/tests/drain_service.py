"""A service of one slow method, run as a process of its own by test_process.py."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc

from libs.common.auth.tokens import TokenVerifier
from libs.common.rpc.application import RpcApplication
from libs.common.rpc.policy import AS_PEER, Row
from libs.common.rpc.server import Service
from libs.common.runtime.process import run
from libs.common.runtime.settings import ProcessSettings
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing

POLICY = {"/toolmesh.audit.v1.AuditService/GetCheckpoint": Row({"operator": AS_PEER}, 30.0, True)}


class Handlers(rpc.AuditServiceServicer):
    """Announces that it began, then waits for a file to appear."""

    async def GetCheckpoint(self, request: Any, context: Any) -> Any:
        folder = Path(sys.argv[1])
        (folder / "begun").touch()
        while not (folder / "go").exists():  # noqa: ASYNC110  (the other process has no event to set)
            await asyncio.sleep(0.01)
        return pb.GetCheckpointResponse()


async def build(settings: ProcessSettings, log: Log, tracing: Tracing) -> RpcApplication:
    async def no_keys() -> bytes:
        return b'{"keys": []}'

    handlers = Handlers()  # type: ignore[abstract]
    verifier = TokenVerifier(no_keys, issuer=settings.issuer, audience=settings.audience)
    service = Service("toolmesh.audit.v1.AuditService", lambda s: rpc.add_AuditServiceServicer_to_server(handlers, s))
    return RpcApplication(settings, log, tracing, policy=POLICY, verifier=verifier, services=[service])


if __name__ == "__main__":
    run("drain", ProcessSettings, build)
