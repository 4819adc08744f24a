"""The RPCs of TokenService, in the order of the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc.aio
from toolmesh.authz.v1 import token_service_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2_grpc as rpc

from libs.common.call_context import serving
from services.authz.convert import revocations as convert_revocations
from services.authz.convert import tokens as convert
from services.authz.domain.revocation.list_revocations import ListRevocations
from services.authz.domain.revocation.revoke_token import RevokeToken
from services.authz.domain.revocation.watch_invalidations import WatchInvalidations
from services.authz.domain.tokens.delegate_token import DelegateToken
from services.authz.domain.tokens.exchange_token import ExchangeToken
from services.authz.domain.tokens.issue_assertion import IssueAssertion
from services.authz.domain.tokens.narrow_token import NarrowToken

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class TokenHandlers(rpc.TokenServiceServicer):
    """Converts, makes one call to the domain, and converts back."""

    exchange_token: ExchangeToken
    delegate_token: DelegateToken
    narrow_token: NarrowToken
    issue_assertion: IssueAssertion
    revoke_token: RevokeToken
    list_revocations: ListRevocations
    watch_invalidations: WatchInvalidations

    async def ExchangeToken(self, request: pb.ExchangeTokenRequest, context: Context) -> pb.ExchangeTokenResponse:
        confirmation = convert.confirmation(request.confirmation)
        issued = await self.exchange_token.execute(
            request.subject_token,
            lifetime=convert.seconds(request),
            confirmation=confirmation,
            scopes=tuple(request.scopes),
        )
        return pb.ExchangeTokenResponse(token=issued.token, claims=convert.claims_message(issued.claims))

    async def DelegateToken(self, request: pb.DelegateTokenRequest, context: Context) -> pb.DelegateTokenResponse:
        issued = await self.delegate_token.execute(
            serving().caller,
            request.agent,
            convert.attenuation(request.part),
            depth=request.delegation_depth if request.HasField("delegation_depth") else None,
            bind_to_agent_key=request.bind_to_agent_key,
        )
        return pb.DelegateTokenResponse(token=issued.token, claims=convert.claims_message(issued.claims))

    async def NarrowToken(self, request: pb.NarrowTokenRequest, context: Context) -> pb.NarrowTokenResponse:
        issued = await self.narrow_token.execute(serving().caller, convert.attenuation(request.part))
        return pb.NarrowTokenResponse(token=issued.token, claims=convert.claims_message(issued.claims))

    async def IssueAssertion(self, request: pb.IssueAssertionRequest, context: Context) -> pb.IssueAssertionResponse:
        assertion = await self.issue_assertion.execute(serving().caller, request.audience)
        return pb.IssueAssertionResponse(assertion=assertion)

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.RevokeTokenResponse:
        call, target = serving(), convert_revocations.target_of(request)
        revocation = await self.revoke_token.execute(target, request.reason, caller=call.identity, peer=call.peer)
        return pb.RevokeTokenResponse(revocation=convert_revocations.revocation_message(revocation))

    async def ListRevocations(self, request: pb.ListRevocationsRequest, context: Context) -> pb.ListRevocationsResponse:
        page, next_page_token = await self.list_revocations.execute(
            request.page_size, request.page_token, tenant=serving().tenant
        )
        messages = [convert_revocations.revocation_message(revocation) for revocation in page]
        return pb.ListRevocationsResponse(revocations=messages, next_page_token=next_page_token)

    async def WatchInvalidations(
        self, request: pb.WatchInvalidationsRequest, context: Context
    ) -> AsyncIterator[pb.WatchInvalidationsResponse]:
        async for invalidation in self.watch_invalidations.execute():
            for message in convert_revocations.invalidation_messages(invalidation):
                yield message
