"""`tools/list`: the tools of a view that this caller may use, page by page, within a token budget."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from toolmesh.registry.v1.registry_service_pb2 import ListToolsRequest
from toolmesh.registry.v1.tool_version_pb2 import LIFECYCLE_STATE_DEFERRED

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import ToolName
from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.tools.meta_tools import META_TOOLS, META_TOOLS_TOKENS
from services.gateway.mcp.tools.tool_definition import definition, estimated_tokens, native_mapping

if TYPE_CHECKING:
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceAsyncStub

PAGE_SIZE = 100
# The registry's pages may be empty for a caller who may use little; a request reads so many of them.
_MAX_REGISTRY_PAGES = 20
_MAX_CURSOR_LENGTH = 4096


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a listing continues, and what it has spent."""

    scan: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    page_token: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    spent: Annotated[int, msgspec.Meta(ge=0)] = 0
    left_out: bool = False


class ListTools:
    """Lists tools in the order of their names. What does not fit the budget is reached through the meta-tools."""

    def __init__(self, registry: RegistryServiceAsyncStub) -> None:
        self._registry = registry

    async def list_tools(self, params: dict[str, Any], context: McpContext) -> Result:
        """Return one page. The last one ends with the meta-tools where tools were left out."""
        cursor = _decode(params["cursor"]) if params.get("cursor") else Cursor()
        page = _Page(context, cursor)
        scans = context.view.scans
        for _ in range(_MAX_REGISTRY_PAGES):
            if page.cursor.scan >= len(scans) or page.tools:
                break
            scan = scans[page.cursor.scan]
            response = await self._registry.ListTools(
                ListToolsRequest(
                    page_size=PAGE_SIZE,
                    page_token=page.cursor.page_token,
                    namespace=scan.namespace,
                    tags=scan.tags,
                    usable_only=True,
                )
            )
            page.add(response)
        return page.result(len(scans))


class _Page:
    def __init__(self, context: McpContext, cursor: Cursor) -> None:
        self._context, self.cursor = context, cursor
        self._budget = context.view.token_budget - META_TOOLS_TOKENS
        self.tools: list[dict[str, Any]] = []

    def add(self, response: Any) -> None:
        """Add a page of the registry, and move on. A tool that is over the budget ends the listing."""
        view, spent, left_out = self._context.view, self.cursor.spent, self.cursor.left_out
        for listed in response.tools:
            name = view.name_of(ToolName(listed.tool.namespace, listed.tool.tool_id))
            if not name or not listed.HasField("version"):
                continue
            if view.namespace and native_mapping(listed.version.manifest).method:
                # Shown as what it is: prompts, resources or completion.
                continue
            if listed.version.state == LIFECYCLE_STATE_DEFERRED:
                # Its schema is shown when it is asked for.
                left_out = True
                continue
            shown = definition(listed.version, name, self._context.version)
            spent += estimated_tokens(shown)
            if spent > self._budget:
                self.cursor = Cursor(len(view.scans), "", spent, left_out=True)
                return
            self.tools.append(shown)
        token = response.next_page_token
        self.cursor = Cursor(self.cursor.scan + (not token), token, spent, left_out)

    def result(self, scans: int) -> Result:
        if self.cursor.scan < scans:
            return {"tools": self.tools, "nextCursor": _encode(self.cursor)}
        return {"tools": [*self.tools, *META_TOOLS] if self.cursor.left_out else self.tools}


def _encode(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def _decode(text: str) -> Cursor:
    try:
        if len(text) > _MAX_CURSOR_LENGTH:
            raise ValueError
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Cursor)
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        raise MeshError(Reason.PAGE_TOKEN_INVALID) from None
