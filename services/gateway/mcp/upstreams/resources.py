"""Resources: results that were too large to be embedded, read by the links that `tools/call` returned."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc.aio
from mcp_types.jsonrpc import INVALID_PARAMS
from toolmesh.executor.v1.executor_service_pb2 import FetchResultRequest, FetchResultResponse

from libs.common.errors import MeshError, Reason
from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.protocol import ProtocolError
from services.gateway.mcp.tools.content import RESULT_URI
from services.gateway.mcp.upstreams.passed_methods import PassedMethods
from services.gateway.transport.call_pipeline import peer_error

if TYPE_CHECKING:
    from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceAsyncStub

MAX_READ_BYTES = 4 * 1024 * 1024
_NOT_FOUND_CODE = -32002
_URI = re.compile(re.escape(RESULT_URI) + r"([0-9a-f-]{36})\?token=([A-Za-z0-9._~%-]{1,1536})")
_TEMPLATE = {
    "uriTemplate": f"{RESULT_URI}{{id}}?token={{token}}",
    "name": "stored result",
    "description": "A result that was stored instead of embedded; tools/call returns links to it.",
}


class Resources:
    """Serves the resources of the server behind a view, and stored results in every view. None of these is listed: a
    link is a secret of the caller whose call returned it."""

    def __init__(self, executor: ExecutorServiceAsyncStub, passed: PassedMethods) -> None:
        self._executor, self._passed = executor, passed

    async def list_resources(self, params: dict[str, Any], context: McpContext) -> Result:
        """Return a page of the server's resources."""
        if not self._passed.offers(context.view, "resources/list"):
            return {"resources": []}
        return await self._passed.call("resources/list", params, context)

    async def list_templates(self, params: dict[str, Any], context: McpContext) -> Result:
        """Return the form of the links, and a page of the server's templates."""
        if not self._passed.offers(context.view, "resources/templates/list"):
            return {"resourceTemplates": [_TEMPLATE]}
        page = await self._passed.call("resources/templates/list", params, context)
        own = [] if params.get("cursor") else [_TEMPLATE]
        return {**page, "resourceTemplates": [*own, *page["resourceTemplates"]]}

    async def read_resource(self, params: dict[str, Any], context: McpContext) -> Result:
        """Return a resource of the server, or a stored result as a whole, up to 4 MiB; `results.fetch` reads larger
        ones in pieces."""
        uri = params["uri"]
        if uri.startswith(RESULT_URI) or not self._passed.offers(context.view, "resources/read"):
            return await self._read_stored(uri, context)
        return await self._pass_on("resources/read", params, context)

    async def check_subscription(self, params: dict[str, Any], context: McpContext) -> None:
        """Check that the caller may watch a resource of the server, or that a stored result is there."""
        uri = params["uri"]
        if uri.startswith(RESULT_URI) or not self._passed.offers(context.view, "resources/subscribe"):
            await self._fetch_stored(uri, context, 1)
            return
        await self._pass_on("resources/subscribe", params, context)

    async def _pass_on(self, method: str, params: dict[str, Any], context: McpContext) -> Result:
        uri = params["uri"]
        try:
            return await self._passed.call(method, params, context)
        except ProtocolError as error:
            raise _not_found(uri, context) if error.code == INVALID_PARAMS else error from None
        except MeshError as error:
            missing = error.metadata.get("jsonrpc_code") == str(_NOT_FOUND_CODE)
            raise _not_found(uri, context) if missing else error from None

    async def _read_stored(self, uri: str, context: McpContext) -> Result:
        pieces = await self._fetch_stored(uri, context, MAX_READ_BYTES + 1)
        if pieces and pieces[0].size_bytes > MAX_READ_BYTES:
            raise MeshError(Reason.RESULT_TOO_LARGE, metadata={"limit_bytes": str(MAX_READ_BYTES)})
        content = b"".join(piece.content for piece in pieces)
        media_type = (pieces[0].media_type if pieces else "") or "application/json"
        return {"contents": [_contents(uri, media_type, content)]}

    async def _fetch_stored(self, uri: str, context: McpContext, max_bytes: int) -> list[FetchResultResponse]:
        match = _URI.fullmatch(uri)
        token = unquote(match.group(2)) if match else ""
        if match is None or not token or len(token) > 512:
            raise _not_found(uri, context)
        request = FetchResultRequest(ref=f"results/{match.group(1)}", access_token=token, max_bytes=max_bytes)
        try:
            return [piece async for piece in self._executor.FetchResult(request)]
        except grpc.aio.AioRpcError as failure:
            error = peer_error(failure)
            raise _not_found(uri, context) if error.reason is Reason.NOT_FOUND else error from None


def _contents(uri: str, media_type: str, content: bytes) -> dict[str, str]:
    shown = {"uri": uri, "mimeType": media_type}
    if media_type == "application/json" or media_type.startswith("text/"):
        try:
            return {**shown, "text": content.decode()}
        except UnicodeDecodeError:
            pass
    return {**shown, "blob": base64.b64encode(content).decode()}


def _not_found(uri: str, context: McpContext) -> ProtocolError:
    code = INVALID_PARAMS if context.stateless else _NOT_FOUND_CODE
    return ProtocolError(code, "Resource not found", {"uri": uri[:2048]}, status=400 if context.stateless else 200)
