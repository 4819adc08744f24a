"""The RPCs of authz, in the order of the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc.aio
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as rpc

from libs.common.rpc.call import serving
from services.authz import convert
from services.authz.domain.check import Check
from services.authz.domain.introspect_token import IntrospectToken
from services.authz.domain.issue_token import IssueToken
from services.authz.domain.ports import KeyRing

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class Handlers(rpc.AuthzServiceServicer):
    """Converts, makes one call to the domain, and converts back."""

    issue_token: IssueToken
    introspect_token: IntrospectToken
    keys: KeyRing
    check: Check

    async def IssueToken(self, request: pb.IssueTokenRequest, context: Context) -> pb.IssueTokenResponse:
        issued = await self.issue_token(convert.token_request(request))
        return convert.issued_message(issued)

    async def IntrospectToken(self, request: pb.IntrospectTokenRequest, context: Context) -> pb.IntrospectTokenResponse:
        found = await self.introspect_token(request.token)
        return convert.introspection_message(found)

    async def GetJwks(self, request: pb.GetJwksRequest, context: Context) -> pb.GetJwksResponse:
        return pb.GetJwksResponse(jwks=await self.keys.jwks())

    async def Check(self, request: pb.CheckRequest, context: Context) -> pb.CheckResponse:
        decision = self.check(serving().caller, convert.call_facts(request.call))
        return pb.CheckResponse(decision=convert.decision_message(decision))
