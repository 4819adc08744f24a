"""Routes ASGI requests to their endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from libs.common.telemetry.log import Log
from libs.common.trace_context import continue_trace
from services.gateway.authzen.endpoint import (
    CONFIGURATION,
    EVALUATION,
    EVALUATIONS_PATH,
    AuthzenEndpoint,
    configuration,
)
from services.gateway.mcp.http.endpoint import McpEndpoint
from services.gateway.mcp.http.protected_resource import MCP_PATH, METADATA_PATH, metadata
from services.gateway.mcp.views import Views
from services.gateway.token_exchange.endpoint import TOKEN_PATH
from services.gateway.transport.asgi_types import Receive, Scope, Send
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.reply import Reply, failure, respond
from services.gateway.transport.request.public_address import public_address
from services.gateway.transport.rpc import RpcEndpoint

_POINTER = dump(
    {
        "service": "toolmesh gateway",
        "rpc": "/rpc",
        "mcp": "/mcp",
        "describe": {"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"},
        "token": TOKEN_PATH,
        "keys": "/.well-known/jwks.json",
        "authzen": "/.well-known/authzen-configuration",
        "console": "/console",
    }
)
CONSOLE_PATH = "/console"
_HEALTHY, _DRAINING = dump({"status": "serving"}), dump({"status": "draining"})


class Router:
    """The ASGI application. An unexpected error is logged here, and the server answers 500."""

    def __init__(
        self,
        rpc: RpcEndpoint,
        authzen: AuthzenEndpoint,
        token_exchange: Callable[[Scope, Receive, Send], Awaitable[None]],
        mcp: McpEndpoint,
        console: Callable[[Scope, Receive, Send], Awaitable[None]],
        keys: Callable[[], Awaitable[bytes]],
        in_flight: InFlightRequests,
        log: Log,
        public_origins: Collection[str],
        views: Views,
        authorization_servers: Collection[str],
    ) -> None:
        self._public_origins, self._views, self._authorization_servers = public_origins, views, authorization_servers
        self._token_exchange = token_exchange
        self._rpc, self._authzen, self._mcp, self._console, self._keys = rpc, authzen, mcp, console, keys
        self._in_flight, self._log = in_flight, log
        self._pages = {
            "/": self._pointer,
            "/healthz": self._health,
            "/.well-known/jwks.json": self._jwks,
            CONFIGURATION: self._authzen_configuration,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        try:
            if path == "/rpc":
                await self._rpc(scope, receive, send)
            elif path == MCP_PATH or path.startswith(MCP_PATH + "/"):
                await self._mcp(scope, receive, send)
            elif path in (EVALUATION, EVALUATIONS_PATH):
                await self._authzen(scope, receive, send)
            elif path == TOKEN_PATH:
                await self._token_exchange(scope, receive, send)
            elif path == CONSOLE_PATH or path.startswith(CONSOLE_PATH + "/"):
                await self._console(scope, receive, send)
            else:
                await respond(send, await self._page(scope), *self._in_flight.close_headers())
        except Exception as error:
            self._log.error("unexpected error", path=path[:200], cause=error)
            raise

    async def _page(self, scope: Scope) -> Reply:
        path, verb = scope["path"], scope["method"]
        page = self._protected_resource if path.startswith(METADATA_PATH) else self._pages.get(path)
        if page is None:
            return failure(MeshError(Reason.METHOD_NOT_FOUND), _trace_id(scope))
        if verb not in ("GET", "HEAD"):
            error = MeshError(Reason.INVALID_REQUEST, message="this path is only read")
            return failure(error, _trace_id(scope), status=405, headers=[(b"allow", b"GET, HEAD")])
        return await page(scope)

    async def _authzen_configuration(self, scope: Scope) -> Reply:
        try:
            return configuration(scope, self._public_origins)
        except MeshError as error:
            return failure(error, _trace_id(scope))

    async def _protected_resource(self, scope: Scope) -> Reply:
        try:
            address = public_address(scope, self._public_origins)
        except MeshError as error:
            return failure(error, _trace_id(scope))
        document = metadata(address, scope["path"], self._views, self._authorization_servers)
        if document is None:
            return failure(MeshError(Reason.METHOD_NOT_FOUND), _trace_id(scope))
        return Reply(200, [(b"cache-control", b"public, max-age=300")], dump(document))

    async def _pointer(self, scope: Scope) -> Reply:
        return Reply(200, [], _POINTER)

    async def _health(self, scope: Scope) -> Reply:
        return Reply(200, [], _HEALTHY) if self._in_flight.serving else Reply(503, [], _DRAINING)

    async def _jwks(self, scope: Scope) -> Reply:
        try:
            return Reply(200, [(b"cache-control", b"public, max-age=2")], await self._keys())
        except MeshError as error:
            return failure(error, _trace_id(scope), status=503)


def _trace_id(scope: Scope) -> str:
    """Return the trace id of the edge, or a new one."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    return continue_trace(headers.get(b"traceparent", b"").decode("latin-1")).trace_id
