"""The RPCs of AuthzService, in the order of the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc.aio
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as rpc

from libs.common.call_context import serving
from services.authz.convert import authz as convert
from services.authz.convert import tokens as convert_tokens
from services.authz.domain.decisions.batch_check import BatchCheck
from services.authz.domain.decisions.check import Check
from services.authz.domain.decisions.filter_tools import FilterTools
from services.authz.domain.ports import KeyRing
from services.authz.domain.tokens.introspect_token import IntrospectToken
from services.authz.domain.tokens.issue_token import IssueToken

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class AuthzHandlers(rpc.AuthzServiceServicer):
    """Converts, makes one call to the domain, and converts back."""

    issue_token: IssueToken
    introspect_token: IntrospectToken
    keys: KeyRing
    check: Check
    batch_check: BatchCheck
    filter_tools: FilterTools

    async def IssueToken(self, request: pb.IssueTokenRequest, context: Context) -> pb.IssueTokenResponse:
        issued = await self.issue_token.execute(convert_tokens.token_request(request))
        return convert.issued_message(issued)

    async def IntrospectToken(self, request: pb.IntrospectTokenRequest, context: Context) -> pb.IntrospectTokenResponse:
        introspection = await self.introspect_token.execute(request.token)
        return convert.introspection_message(introspection)

    async def GetJwks(self, request: pb.GetJwksRequest, context: Context) -> pb.GetJwksResponse:
        return pb.GetJwksResponse(jwks=await self.keys.jwks())

    async def Check(self, request: pb.CheckRequest, context: Context) -> pb.CheckResponse:
        call = convert.call_facts(request.call)
        if request.HasField("refusal"):
            decision = self.check.record_refusal(serving().caller, call, convert.refusal_of(request.refusal))
        elif request.HasField("subject"):
            subject = convert.subject_facts(request.subject)
            decision = await self.check.decide_for_subject(serving().caller, subject, call)
        else:
            decision = await self.check.decide(serving().caller, call)
        return convert.check_response(decision)

    async def BatchCheck(self, request: pb.BatchCheckRequest, context: Context) -> pb.BatchCheckResponse:
        calls = [convert.call_facts(call) for call in request.calls]
        decisions = await self.batch_check.execute(serving().caller, calls)
        return pb.BatchCheckResponse(decisions=[convert.decision_message(decision) for decision in decisions])

    async def FilterTools(self, request: pb.FilterToolsRequest, context: Context) -> pb.FilterToolsResponse:
        tools = [convert.call_facts(tool) for tool in request.tools]
        results, version = await self.filter_tools.execute(serving().caller, tools)
        return pb.FilterToolsResponse(tools=convert.usability_values(results), policy_set_version=version)
