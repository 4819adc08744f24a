"""The endpoint `/console`: finds the page of a request, and answers every failure with a page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

import grpc.aio

from libs.common.call_context import Call, enter
from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from libs.common.telemetry.log import Log
from services.gateway.console.login.cookies import SESSION, read_cookie
from services.gateway.console.login.login import PATH as LOGIN_PATH
from services.gateway.console.login.login import Login
from services.gateway.console.login.origin_check import check_origin
from services.gateway.console.login.session import SealedCookies, open_session
from services.gateway.console.pages import Pages
from services.gateway.console.request import MAX_FORM_BYTES, ConsoleRequest, parse_form, parse_query
from services.gateway.console.response import EventStream, Response, redirect, send_events, send_response
from services.gateway.console.static_files import StaticFiles
from services.gateway.policy import CONSOLE
from services.gateway.transport.asgi_types import DisconnectedError, Headers, Receive, Scope, Send
from services.gateway.transport.call_pipeline import begin_call
from services.gateway.transport.disconnect import while_connected
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.reply import correlation_headers
from services.gateway.transport.request.body import read_body
from services.gateway.transport.request.headers import RequestHead, read_head, read_headers
from services.gateway.transport.request.public_address import public_address
from services.gateway.transport.telemetry import CANCELED, Telemetry, code_of

Handler = Callable[..., Awaitable[Response | EventStream]]
_READS = ("GET", "HEAD")


class Route(NamedTuple):
    """One page or form: its method, the pattern of its path, whose groups the handler gets, and its name in metrics."""

    method: str
    pattern: re.Pattern[str]
    name: str
    handler: Handler
    public: bool = False
    """True if it is served without a session."""


@dataclass(frozen=True)
class ConsoleEndpoint:
    """Serves the console."""

    routes: Collection[Route]
    login: Login
    pages: Pages
    static: StaticFiles
    cookies: SealedCookies
    in_flight: InFlightRequests
    telemetry: Telemetry
    log: Log
    public_origins: Collection[str]
    sample_ratio: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = read_headers(scope)
        head = read_head(scope, headers, self.sample_ratio)
        call = begin_call(head)
        # The session is the only credential here.
        call.token, call.method = "", "console/unknown"
        enter(call)
        more = [*correlation_headers(head), *self.in_flight.close_headers()]
        if (file := self.static.get(scope["path"])) is not None and scope["method"] in _READS:
            await send_response(send, file, head=scope["method"] == "HEAD", more=more)
            return
        route, groups = self._route(scope)
        call.method = f"console/{route.name}" if route else call.method
        span, code = self.telemetry.begin(call), CANCELED
        try:
            with self.in_flight:
                response, error = await self._respond(scope, receive, headers, head, call, route, groups)
                code = code_of(error)
                await self._send(scope, send, response, more)
        except DisconnectedError:
            return
        except MeshError as error:
            code = code_of(error)
            await self._send(scope, send, Response(503, error.message.encode(), b"text/plain"), more)
        finally:
            self.telemetry.end(call, span, code)

    async def _send(self, scope: Scope, send: Send, response: Response | EventStream, more: Headers) -> None:
        if isinstance(response, EventStream):
            try:
                await while_connected(scope["state"]["disconnect"], send_events(send, response, more))
            finally:
                response.release()
        else:
            await send_response(send, response, head=scope["method"] == "HEAD", more=more)

    def _route(self, scope: Scope) -> tuple[Route | None, tuple[str, ...]]:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        for route in self.routes:
            if route.method == method and (match := route.pattern.fullmatch(scope["path"])):
                return route, match.groups()
        return None, ()

    async def _respond(
        self,
        scope: Scope,
        receive: Receive,
        headers: Mapping[bytes, bytes],
        head: RequestHead,
        call: Call,
        route: Route | None,
        groups: tuple[str, ...],
    ) -> tuple[Response | EventStream, MeshError | None]:
        request = ConsoleRequest(scope["method"], scope["path"], {}, headers, "", head.trace.trace_id)
        try:
            await self._read(request, scope, receive)
            if route is None:
                raise MeshError(Reason.NOT_FOUND, message="the console has no such page")
            if not route.public and request.session is None:
                return self._without_session(request), None
            call.token = request.session.token if request.session else ""
            call.deadline = None if route.name == "events" else head.started + CONSOLE.deadline
            work = route.handler(request, *groups)
            return await while_connected(scope["state"]["disconnect"], work), None
        except DisconnectedError:
            raise
        except asyncio.CancelledError:
            # The client is still connected, so the process is ending.
            return self._failed(request, MeshError(Reason.SERVICE_UNAVAILABLE))
        except grpc.aio.AioRpcError as failure:
            return self._failed(request, from_rpc_error(failure))
        except MeshError as error:
            return self._failed(request, error)
        except Exception as cause:
            self.log.error("unexpected error", method=call.method, cause=cause)
            return self._failed(request, MeshError(Reason.INTERNAL))

    async def _read(self, request: ConsoleRequest, scope: Scope, receive: Receive) -> None:
        """Read the rest of the request. A form that another site sends is refused before its body is read."""
        request.address = public_address(scope, self.public_origins)
        request.query = parse_query(scope.get("query_string", b""))
        request.session = open_session(self.cookies, read_cookie(request, SESSION))
        if request.method == "POST":
            check_origin(request)
            body = await read_body(receive, request.headers, MAX_FORM_BYTES, None)
            request.form = parse_form(body, request.header(b"content-type"))
        elif request.method not in _READS:
            raise MeshError(Reason.INVALID_REQUEST, message="the console is used with GET and POST")

    def _without_session(self, request: ConsoleRequest) -> Response:
        """Lead to the login. Browsers keep the session's cookie back when another site leads here, such as a link in a
        mail: then the page is loaded once more, by itself."""
        if request.method in _READS and request.header(b"sec-fetch-site") == "cross-site":
            return self.pages.render(request, "reload.html", room="", target=request.target)
        to_login = f"{LOGIN_PATH}?{urlencode({'next': request.target})}" if request.method in _READS else LOGIN_PATH
        if request.partial:
            return Response(401).with_headers((b"hx-redirect", to_login.encode()))
        return redirect(to_login)

    def _failed(self, request: ConsoleRequest, error: MeshError) -> tuple[Response, MeshError]:
        try:
            return self._failure_page(request, error), error
        except Exception as cause:
            self.log.error("unexpected error", method="console/error", cause=cause)
            return Response(500, b"The page could not be made. Try again.", b"text/plain"), error

    def _failure_page(self, request: ConsoleRequest, error: MeshError) -> Response:
        if error.row.http_status != 401:
            return self.pages.error(request, error)
        if request.partial:
            return Response(401).with_headers((b"hx-redirect", LOGIN_PATH.encode()))
        return self.login.page(request, error, request.target if request.method in _READS else "")


def path(pattern: str) -> re.Pattern[str]:
    """Return the pattern of a path; `{ticket}` stands for the id of a ticket."""
    return re.compile(pattern.replace("{ticket}", "([0-9a-zA-Z-]{1,120})"), re.ASCII)
