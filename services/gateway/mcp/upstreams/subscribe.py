"""`resources/subscribe` and `resources/unsubscribe`, and who follows what a stream is subscribed to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from mcp_types.jsonrpc import INVALID_PARAMS

from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.ports import Subscriptions, ToolFacts
from services.gateway.mcp.protocol import ProtocolError
from services.gateway.mcp.tools.content import RESULT_URI
from services.gateway.mcp.upstreams.passed_methods import passes
from services.gateway.mcp.upstreams.resource_follower import MAX_URI, MAX_WATCHED, ResourceFollower
from services.gateway.mcp.upstreams.resources import Resources
from services.gateway.mcp.views import View

if TYPE_CHECKING:
    from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceAsyncStub

SUBSCRIBE = "resources/subscribe"
Updated = Callable[[str], None]


class Subscribe:
    """Keeps subscriptions with their session, for every replica. A stored result never changes: nothing is kept."""

    def __init__(self, resources: Resources, subscriptions: Subscriptions) -> None:
        self._resources, self._subscriptions = resources, subscriptions

    async def subscribe(self, params: dict[str, Any], context: McpContext) -> Result:
        """Subscribe to a resource that the caller may watch. Fails like `resources/read`."""
        uri = params["uri"]
        if len(uri) > MAX_URI:
            raise ProtocolError(INVALID_PARAMS, f"an address has at most {MAX_URI} characters")
        await self._resources.check_subscription(params, context)
        if not uri.startswith(RESULT_URI):
            await self._subscriptions.add(context.caller.owner, context.session, context.view.namespace, uri)
        return {}

    async def unsubscribe(self, params: dict[str, Any], context: McpContext) -> Result:
        """End a subscription; one that does not exist is ended already."""
        namespace = context.view.namespace
        await self._subscriptions.remove(context.caller.owner, context.session, namespace, params["uri"])
        return {}


class ResourceFollowers:
    """Makes the follower of each stream. A view of one namespace has the resources of its upstream."""

    def __init__(self, executor: ExecutorServiceAsyncStub, facts: ToolFacts, subscriptions: Subscriptions) -> None:
        self._executor, self._facts, self._subscriptions = executor, facts, subscriptions

    def of_session(self, view: View, session: str, updated: Updated) -> ResourceFollower | None:
        """Return the follower of what a session is subscribed to, now and later."""
        if not view.namespace:
            return None

        async def wanted() -> frozenset[str]:
            if not passes(self._facts, view, SUBSCRIBE):
                return frozenset()
            return await self._subscriptions.list(session, view.namespace)

        return ResourceFollower(self._executor, view.namespace, wanted, updated)

    def of_resources(self, view: View, uris: Iterable[str], updated: Updated) -> ResourceFollower | None:
        """Return the follower of given resources, as many as one stream may have."""
        followed = frozenset([uri for uri in uris if 0 < len(uri) <= MAX_URI][:MAX_WATCHED])
        if not followed or not passes(self._facts, view, SUBSCRIBE):
            return None

        async def wanted() -> frozenset[str]:
            return followed

        return ResourceFollower(self._executor, view.namespace, wanted, updated)
