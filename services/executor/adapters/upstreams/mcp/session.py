"""An MCP session: the revision that both sides speak, the tools with their definitions, and calls of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

from libs.common.errors import MeshError
from libs.common.json.canonical import digest
from libs.common.json.jsonio import dump
from services.executor.adapters.upstreams.mcp.passed_methods import METHODS, SUBSCRIBE, passed_methods
from services.executor.adapters.upstreams.mcp.resource_listener import ResourceListener, wait_for_event
from services.executor.adapters.upstreams.mcp.transport import CallClient, Params, RpcError, ServerLostError, Transport
from services.executor.domain.scheduling.heavy_work import WorkShare

MAX_TOOLS, MAX_DISCOVERY_BYTES = 512, 3 * 1024 * 1024
_MAX_PAGES = 64
_MAX_TEXT = 255
_MAX_ROUNDS = 16
# A server with sessions is told once what any caller can be asked for; what this one cannot is refused when it asks.
_ASKABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
_LOG_LEVEL = "info"
_LISTEN, _OPEN_SECONDS = "subscriptions/listen", 2.0
_CLIENT = {"name": "toolmesh", "version": "1"}
# How a server without a handshake answers `initialize`.
_NO_HANDSHAKE = frozenset({UNSUPPORTED_PROTOCOL_VERSION, -32600, -32601, -32602})


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool as the server describes it."""

    name: str
    document: bytes
    """JSON."""
    digest: str
    method: str = "tools/call"
    """The method of the server that it stands for."""


class McpSession:
    """One session with one server."""

    def __init__(self, transport: Transport, share: WorkShare) -> None:
        self._transport, self._share = transport, share
        self.server_name = self.server_version = self.protocol_version = ""
        self.definitions: dict[str, Definition] = {}
        self._capabilities: dict[str, Any] = {}
        self._modern = False

    async def open(self) -> None:
        """Agree on a revision: by the handshake, or without one where the server has none. Raises like a request."""
        try:
            await self._shake_hands()
        except RpcError as error:
            if error.code not in _NO_HANDSHAKE:
                raise
            await self._discover()

    async def list_tools(self) -> dict[str, Definition]:
        """Read every tool, and keep the definitions, with those of the other methods that the server has.

        Raises like a request, and ServerLostError beyond the bounds.
        """
        found = {each["name"]: _passed(each) for each in passed_methods(self._capabilities)}
        if found and "tools" not in self._capabilities:
            self.definitions = found
            return found
        params: Params = {}
        for _ in range(_MAX_PAGES):
            page = await self._request("tools/list", params)
            await self._share.run(partial(_add_definitions, found, page.get("tools")))
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                self.definitions = found
                return found
            params = {"cursor": cursor}
        raise ServerLostError(f"the server lists its tools on more than {_MAX_PAGES} pages")

    async def call(
        self, definition: Definition, arguments: dict[str, Any], client: CallClient | None
    ) -> dict[str, Any]:
        """Call a tool, or the method that it stands for, and return the result. Raises like a request.

        A server without sessions that needs something of its caller ends the request with that, and is called again
        with the answers.
        """
        if definition.method == SUBSCRIBE:
            await self._try_subscription(arguments["uri"])
            return {}
        params = arguments if definition.method != "tools/call" else {"name": definition.name, "arguments": arguments}
        result = await self._request(definition.method, params, client)
        for _ in range(_MAX_ROUNDS):
            if result.get("resultType") != "input_required":
                return result
            requests = result.get("inputRequests")
            answers = await client.answer(requests) if client is not None and isinstance(requests, dict) else {}
            state = {"requestState": result["requestState"]} if "requestState" in result else {}
            result = await self._request(definition.method, {**params, "inputResponses": answers, **state}, client)
        raise ServerLostError("the server asks for input again and again")

    async def watch(self, uris: Sequence[str], listener: ResourceListener) -> None:
        """Let the server report changes of resources to the listener, which is ready once the server agreed.

        Returns never: raises like a request, and when the server ends it.
        """
        if self._modern:
            await self._request(_LISTEN, {"notifications": {"resourceSubscriptions": list(uris)}}, listener)
            raise ServerLostError("the server ended the subscription")
        opened = asyncio.Event()
        listening = asyncio.create_task(self._transport.listen(listener, opened), name="mcp-listen")
        try:
            # Some servers answer with their first notification alone.
            await wait_for_event(opened, listening, _OPEN_SECONDS)
            for uri in uris:
                await self._transport.request(SUBSCRIBE, {"uri": uri})
            listener.ready.set()
            await listening
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def _try_subscription(self, uri: str) -> None:
        """Subscribe, and end the subscription at once: whether the server takes it is all that a call can say."""
        if not self._modern:
            await self._transport.request(SUBSCRIBE, {"uri": uri})
            await self._transport.request("resources/unsubscribe", {"uri": uri})
            return
        listener = ResourceListener([uri])
        watching = asyncio.create_task(self.watch([uri], listener), name="mcp-try-subscription")
        try:
            await wait_for_event(listener.ready, watching, None)
            if listener.refusal is not None:
                raise listener.refusal
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _shake_hands(self) -> None:
        params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": _ASKABLE, "clientInfo": _CLIENT}
        answer = await self._transport.request("initialize", params)
        revision = answer.get("protocolVersion")
        if revision not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise ServerLostError("the server speaks a protocol revision that this executor does not know")
        self._adopt(str(revision), answer.get("serverInfo"), modern=False)
        self._keep_capabilities(answer)
        await self._transport.notify("notifications/initialized", {})

    async def _discover(self) -> None:
        self._adopt(LATEST_MODERN_VERSION, None, modern=True)
        answer = await self._request("server/discover", {})
        supported = answer.get("supportedVersions")
        if not isinstance(supported, list) or not set(MODERN_PROTOCOL_VERSIONS) & {str(each) for each in supported}:
            raise ServerLostError("the server speaks a protocol revision that this executor does not know")
        meta = answer.get("_meta")
        info = meta.get(SERVER_INFO_META_KEY) if isinstance(meta, dict) else None
        self._adopt(LATEST_MODERN_VERSION, info or answer.get("serverInfo"), modern=True)
        self._keep_capabilities(answer)

    def _keep_capabilities(self, answer: dict[str, Any]) -> None:
        capabilities = answer.get("capabilities")
        self._capabilities = capabilities if isinstance(capabilities, dict) else {}

    def _adopt(self, revision: str, info: Any, *, modern: bool) -> None:
        self.protocol_version, self._modern = revision, modern
        self._transport.adopt(revision, modern=modern)
        if isinstance(info, dict):
            self.server_name, self.server_version = (_text(info.get(key)) for key in ("name", "version"))

    async def _request(self, method: str, params: Params, client: CallClient | None = None) -> dict[str, Any]:
        if self._modern:
            meta: dict[str, Any] = {
                PROTOCOL_VERSION_META_KEY: self.protocol_version,
                CLIENT_INFO_META_KEY: _CLIENT,
                CLIENT_CAPABILITIES_META_KEY: {} if client is None else client.capabilities,
            }
            if client is not None:
                meta[LOG_LEVEL_META_KEY] = _LOG_LEVEL
            params = {**params, "_meta": meta}
        return await self._transport.request(method, params, client)


def _passed(document: dict[str, Any]) -> Definition:
    return Definition(document["name"], dump(document), digest(document), document["name"])


def _add_definitions(found: dict[str, Definition], tools: Any) -> None:
    """Add the tools of a page, as far as the bounds of one server allow."""
    left = MAX_DISCOVERY_BYTES - sum(len(each.document) for each in found.values())
    for tool in tools if isinstance(tools, list) else ():
        definition = None if len(found) >= MAX_TOOLS else _definition(tool, left)
        if definition is not None and definition.name not in found and definition.name not in METHODS:
            found[definition.name] = definition
            left -= len(definition.document)


def _definition(tool: Any, max_bytes: int) -> Definition | None:
    """Return the definition of a listed tool; None for what is none, or has more bytes."""
    if not isinstance(tool, dict):
        return None
    name = tool.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_TEXT:
        return None
    try:
        document = dump(tool)
        return Definition(name, document, digest(tool)) if len(document) <= max_bytes else None
    except (MeshError, ValueError, TypeError):
        return None


def _text(value: Any) -> str:
    return "".join(letter for letter in value[:_MAX_TEXT] if letter.isprintable()) if isinstance(value, str) else ""
