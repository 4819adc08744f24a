"""Login and logout: a mesh token that is pasted, or the login of an OpenID provider that the mesh trusts."""

from __future__ import annotations

import hmac
import re
import time
from typing import TYPE_CHECKING, Any

from toolmesh.approval.v1 import approval_service_pb2 as approval_pb
from toolmesh.authz.v1 import token_service_pb2 as token_pb

from libs.common.auth.jose import payload_of
from libs.common.call_context import serving
from libs.common.errors import MeshError, Reason
from services.gateway.console.approvals.approvals import PATH as HOME
from services.gateway.console.login.cookies import LOGIN, SESSION, read_cookie, remove_cookie, set_cookie
from services.gateway.console.login.oidc import OidcProvider
from services.gateway.console.login.origin_check import check_form_token
from services.gateway.console.login.session import SealedCookies, Session, new_session, seal_session
from services.gateway.console.pages import Pages, error_view
from services.gateway.console.peer_calls import answer_of
from services.gateway.console.request import ConsoleRequest
from services.gateway.console.response import Response, redirect

if TYPE_CHECKING:
    from toolmesh.approval.v1.approval_service_pb2_grpc import ApprovalServiceAsyncStub
    from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceAsyncStub

PATH = "/console/login"
CALLBACK = "/console/login/callback"
# How long the login at the provider may take.
LOGIN_SECONDS = 600
_NEXT = re.compile(r"/console/(?!login|logout|events)[A-Za-z0-9/_-]*(\?[A-Za-z0-9=&_-]*)?")


class Login:
    """Begins and ends sessions."""

    def __init__(
        self,
        pages: Pages,
        cookies: SealedCookies,
        approvals: ApprovalServiceAsyncStub,
        tokens: TokenServiceAsyncStub,
        provider: OidcProvider | None,
    ) -> None:
        self._pages, self._cookies, self._approvals, self._tokens = pages, cookies, approvals, tokens
        self._provider = provider

    async def show(self, request: ConsoleRequest) -> Response:
        """Serve the login page."""
        return redirect(_next_of(request.query)) if request.session else self.page(request)

    def page(self, request: ConsoleRequest, error: MeshError | None = None, next_path: str = "") -> Response:
        """Return the login page, with an error if there was one, which also ends the session."""
        request.session = None
        response = self._pages.render(
            request,
            "login.html",
            status=200 if error is None else error.row.http_status,
            room="",
            error=None if error is None else error_view(error, request.trace_id),
            provider=self._provider.host if self._provider else "",
            next=next_path or _next_of(request.query),
        )
        return response if error is None else response.with_headers(remove_cookie(request, SESSION))

    async def with_token(self, request: ConsoleRequest) -> Response:
        """Log in with the token that was pasted."""
        next_path = _next_of(request.form)
        try:
            return await self._begin(request, new_session(request.form.get("token", "").strip()), next_path)
        except MeshError as error:
            return self.page(request, error, next_path)

    async def logout(self, request: ConsoleRequest) -> Response:
        """End the session in this browser. The token stays valid until it expires."""
        check_form_token(request)
        return redirect(PATH).with_headers(remove_cookie(request, SESSION))

    async def begin_oidc(self, request: ConsoleRequest) -> Response:
        """Send the browser to the provider, with a fresh PKCE challenge, state and nonce."""
        provider = self._required_provider()
        attempt = provider.new_attempt()
        url = await provider.authorization_url(attempt, request.address + CALLBACK)
        expires = int(time.time()) + LOGIN_SECONDS
        record = {**attempt._asdict(), "next": _next_of(request.query), "expires": expires}
        # Lax: the provider sends the browser back here from another site.
        cookie = set_cookie(request, LOGIN, self._cookies.seal("login", record), seconds=LOGIN_SECONDS, same_site="Lax")
        return redirect(url).with_headers(cookie)

    async def finish_oidc(self, request: ConsoleRequest) -> Response:
        """Exchange the provider's code for its token, and that for a token of the mesh."""
        provider, record = self._required_provider(), self._attempt_of(request)
        try:
            provider.check_answer(request.query)
            id_token = await provider.redeem_code(request.query["code"], record["verifier"], request.address + CALLBACK)
            asked = token_pb.ExchangeTokenRequest(subject_token=id_token)
            exchanged = await answer_of(self._tokens.ExchangeToken(asked))
            # Authz verified the token; only then its claims mean anything.
            if payload_of(id_token).get("nonce") != record["nonce"]:
                raise MeshError(Reason.TOKEN_MALFORMED, message="the provider's token was made for another login")
            response = await self._begin(request, new_session(exchanged.token), record["next"])
        except MeshError as error:
            response = self.page(request, error, record["next"])
        return response.with_headers(remove_cookie(request, LOGIN))

    def _attempt_of(self, request: ConsoleRequest) -> dict[str, Any]:
        record = self._cookies.open("login", read_cookie(request, LOGIN))
        sent = request.query.get("state", "")
        if record is None or not hmac.compare_digest(sent.encode(), record["state"].encode()):
            message = "this login was begun in another browser, or too long ago; log in again"
            raise MeshError(Reason.UNAUTHENTICATED, message=message)
        return record

    async def _begin(self, request: ConsoleRequest, session: Session, next_path: str) -> Response:
        """Begin the session, once a service has accepted its token."""
        cookie = seal_session(self._cookies, session)
        serving().token = session.token
        await answer_of(self._approvals.ListTickets(approval_pb.ListTicketsRequest(page_size=1)))
        seconds = max(0, session.expires - int(time.time()))
        return redirect(next_path).with_headers(set_cookie(request, SESSION, cookie, seconds=seconds))

    def _required_provider(self) -> OidcProvider:
        if self._provider is None:
            raise MeshError(Reason.NOT_FOUND, message="no OpenID provider is configured; log in with a token")
        return self._provider


def _next_of(values: Any) -> str:
    """Return the page to go to after the login. Only a path of the console counts, so a link cannot lead elsewhere."""
    wanted = values.get("next", "")
    return wanted if _NEXT.fullmatch(wanted) else HOME
