"""Asks authz about the tokens of approvers, and looks up revocations of tokens that a ticket relies on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import grpc.aio
from toolmesh.authz.v1.authz_service_pb2 import IntrospectTokenRequest
from toolmesh.authz.v1.authz_service_pb2_grpc import AuthzServiceStub

from libs.common.auth.identity import Identity, TokenLineage
from libs.common.auth.revocations import RevocationView
from libs.common.call_context import serving
from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from services.approval.domain.errors import revocations_unknown
from services.approval.domain.model import Ticket

_ASK_SECONDS = 2.0


class IntrospectedAuthority:
    """Asks authz whether the token of the current call is valid now. Without an answer, nothing is decided."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = AuthzServiceStub(channel)

    async def confirm(self) -> None:
        request = IntrospectTokenRequest(token=serving().token)
        try:
            answer = await self._stub.IntrospectToken(request, timeout=_ASK_SECONDS)
        except grpc.aio.AioRpcError:
            message = "authz cannot confirm the approver at present"
            raise MeshError(Reason.SERVICE_UNAVAILABLE, message=message, retry_after=1.0) from None
        if not answer.active:
            raise MeshError(Reason.TOKEN_REVOKED)


class FollowedRevocations:
    """Looks revocations up in the view that this process follows."""

    def __init__(self, view: RevocationView) -> None:
        self._view = view

    def find_revoked(self, ticket: Ticket) -> Reason | None:
        requester = ticket.draft.requester
        token_ids = [requester.token_id, *(token_id for _, token_id in requester.delegation_chain)]
        # Every token of the chain was made before the ticket, so a later revocation of a holder concerns it.
        holders = [(holder, ticket.create_time) for holder in sorted(requester.participants)]
        if self._refuses(token_ids, holders, requester.tenant):
            return Reason.TICKET_TOKEN_REVOKED
        approvals = ticket.approvals
        voters = [(approver, time) for approver, _, time in approvals]
        if self._refuses([token_id for _, token_id, _ in approvals], voters, requester.tenant):
            return Reason.TICKET_APPROVER_REVOKED
        if not self._view.believed():
            raise revocations_unknown()
        return None

    def _refuses(self, token_ids: Sequence[str], holders: Sequence[tuple[str, datetime]], tenant: str) -> bool:
        marks = frozenset(f"token:{token_id}" for token_id in token_ids if token_id)
        made = tuple((holder, time.timestamp()) for holder, time in holders)
        return self._view.refuses(TokenLineage(marks, made, tenant))


class FollowedWatchers:
    """Checks watchers' tokens by the view of revocations that this process follows."""

    def __init__(self, view: RevocationView, clock: Clock) -> None:
        self._view, self._clock = view, clock

    def check_of(self, identity: Identity | None) -> Callable[[], None]:
        def check() -> None:
            if identity is None:
                return
            if self._view.refuses(identity.token_lineage):
                raise MeshError(Reason.TOKEN_REVOKED)
            if identity.expires_at <= self._clock.now().timestamp():
                raise MeshError(Reason.TOKEN_EXPIRED)

        return check
