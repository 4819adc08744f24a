"""What services follow of their issuer, as a real servicer that a test speaks through: revocations, policies,
silence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import token_service_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2_grpc as rpc

HEARTBEAT_SECONDS = 0.2


class Invalidations(rpc.TokenServiceServicer):
    """Tells everyone who watches what was revoked and which policies are asked; can fall silent without hanging up."""

    def __init__(self, policy_set_version: str = "set-1") -> None:
        self.version = policy_set_version
        self.revoked: list[pb.Revocation] = []
        self.speaking = True
        self.breaking_off = 0
        """How many of the next streams end in the middle of their first word."""
        self.streams = 0
        self._changed = asyncio.Event()

    def add(self, server: grpc.aio.Server) -> None:
        """Serve from this server too."""
        rpc.add_TokenServiceServicer_to_server(self, server)

    def revoke(self, *, at: float | None = None, **target: str) -> None:
        """Revoke a token, a subject or a key, until an hour from now."""
        moment = time.time() if at is None else at
        stamps = {"revoke_time": _stamp(moment), "expire_time": _stamp(time.time() + 3600)}
        name = f"revocations/{len(self.revoked) + 1}"
        self.revoked.append(pb.Revocation(name=name, **target, **stamps))  # type: ignore[arg-type]
        self._tell()

    def activate(self, policy_set_version: str) -> None:
        """Ask other policies from now on."""
        self.version = policy_set_version
        self._tell()

    async def WatchInvalidations(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.streams += 1
        if self.breaking_off:
            self.breaking_off -= 1
            yield pb.WatchInvalidationsResponse(revocations=self.revoked[:1], snapshot=True, continued=True)
            return
        told = 0
        while True:
            if self.speaking:
                yield pb.WatchInvalidationsResponse(
                    sequence=len(self.revoked),
                    revocations=self.revoked[told:],
                    policy_set_version=self.version,
                    snapshot=told == 0,
                )
                told = len(self.revoked) or told
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


async def accepts_every_token(self: Any, request: Any, context: Any) -> authz_pb.IntrospectTokenResponse:
    """Answer IntrospectToken for an issuer that takes nothing back."""
    return authz_pb.IntrospectTokenResponse(active=True)


def _stamp(seconds: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMicroseconds(int(seconds * 1e6))
    return stamp
