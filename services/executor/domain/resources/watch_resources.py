"""WatchResources: authorizes a watch of resources, one by one, and reports their changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from services.executor.domain.model import Caller, Request, Result
from services.executor.domain.scheduling.heavy_work import Principal

MAX_SECONDS = 600.0
_CHECK_SECONDS = 2.0


class ResourceChanges(Protocol):
    """Changes of watched resources."""

    async def next(self, seconds: float) -> Sequence[str]:
        """Return the resources that changed; none after so many seconds. Raises EXTERNAL_UNAVAILABLE at the end."""
        ...


class ResourceServers(Protocol):
    """Servers that say when their resources change."""

    def watch(
        self, upstream_id: str, owner: Principal, uris: Sequence[str]
    ) -> AbstractAsyncContextManager[ResourceChanges]:
        """Watch resources for a caller. Raises EXTERNAL_UNAVAILABLE."""
        ...


class WatchEvent(NamedTuple):
    """One message of a watch: the resources that it watches, first, and then one that changed."""

    watching: tuple[str, ...] = ()
    updated: str = ""


class WatchResources:
    """Watches resources for callers. A watch ends with its token, and has to be asked for again now and then."""

    def __init__(
        self,
        invoke: Callable[[Request], Awaitable[Result]],
        servers: ResourceServers,
        revoked: Callable[[Caller], bool],
        clock: Clock,
    ) -> None:
        self._invoke, self._servers, self._revoked, self._clock = invoke, servers, revoked, clock

    async def stream(self, upstream_id: str, requests: Mapping[str, Request]) -> AsyncIterator[WatchEvent]:
        """Yield what is watched of the resources, then what changes. Each comes with the call that subscribes to it.

        Raises the error of the first call if all are refused, EXTERNAL_UNAVAILABLE when the server ends it, and
        TOKEN_EXPIRED or TOKEN_REVOKED with the token.
        """
        caller = next(iter(requests.values())).caller
        uris = await self._admit(requests)
        ends = self._clock.monotonic() + MAX_SECONDS
        async with self._servers.watch(upstream_id, Principal(caller.tenant, caller.subject), uris) as changes:
            yield WatchEvent(watching=uris)
            while self._clock.monotonic() < ends:
                updated = await changes.next(_CHECK_SECONDS)
                self._check_token(caller)
                for uri in updated:
                    yield WatchEvent(updated=uri)

    async def _admit(self, requests: Mapping[str, Request]) -> tuple[str, ...]:
        """Return the resources whose subscription is permitted and taken by the server."""
        admitted, refusals = [], []
        for uri, request in requests.items():
            try:
                await self._invoke(request)
            except MeshError as error:
                refusals.append(error)
            else:
                admitted.append(uri)
        if not admitted:
            raise refusals[0]
        return tuple(admitted)

    def _check_token(self, caller: Caller) -> None:
        if self._clock.now().timestamp() >= caller.authority_ends:
            raise MeshError(Reason.TOKEN_EXPIRED)
        if self._revoked(caller):
            raise MeshError(Reason.TOKEN_REVOKED)
