"""Follows resources of the server behind a view for one stream, across losses of executors and of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc.aio
from toolmesh.executor.v1.executor_service_pb2 import WatchResourcesRequest, WatchResourcesResponse

from libs.common.errors import MeshError
from libs.common.runtime.backoff import Backoff

if TYPE_CHECKING:
    from toolmesh.executor.v1.executor_service_pb2_grpc import ExecutorServiceAsyncStub

MAX_WATCHED, MAX_URI = 32, 2048
# Before the executor ends a watch: the next one is open by then, so that no change is missed.
_RENEW_SECONDS = 540.0
_OPEN_SECONDS = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 60.0

Wanted = Callable[[], Awaitable[frozenset[str]]]


class ResourceFollower:
    """Keeps one watch open for the resources that are wanted now.

    A resource that begins to be watched is reported once: whether it changed before is not known.
    """

    def __init__(
        self, executor: ExecutorServiceAsyncStub, upstream: str, wanted: Wanted, updated: Callable[[str], None]
    ) -> None:
        self._executor, self._upstream, self._wanted, self._updated = executor, upstream, wanted, updated
        self._stream: Any = None
        self._reading: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.watched: frozenset[str] = frozenset()

    def wake(self) -> None:
        """Look again at what is wanted."""
        self._wake.set()

    async def begin(self) -> frozenset[str]:
        """Open the first watch, and return the resources that are watched. Their earlier changes are not reported."""
        wanted = await self._wanted()
        if wanted:
            with suppress(grpc.aio.AioRpcError, MeshError, TimeoutError):
                self._adopt(*await self._open(wanted))
        return self.watched

    async def run(self) -> None:
        """Follow until cancelled."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        try:
            if self._stream is not None:
                await self._wait()
            while True:
                try:
                    await self._renew()
                except (grpc.aio.AioRpcError, MeshError, TimeoutError):
                    await backoff.wait()
                else:
                    backoff.reset()
                    await self._wait()
        finally:
            self._close()

    async def _wait(self) -> None:
        """Wait for another wish, the loss of the watch, or the time of the next one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_RENEW_SECONDS):
                await self._wake.wait()

    async def _renew(self) -> None:
        self._wake.clear()
        wanted = await self._wanted()
        if not wanted:
            self._close()
            return
        stream, watched = await self._open(wanted)
        unknown = watched - self.watched
        self._adopt(stream, watched)
        for uri in sorted(unknown):
            self._updated(uri)

    async def _open(self, wanted: frozenset[str]) -> tuple[Any, frozenset[str]]:
        stream = self._executor.WatchResources(WatchResourcesRequest(upstream=self._upstream, uris=sorted(wanted)))
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                first = await stream.read()
            if not isinstance(first, WatchResourcesResponse):
                # The end of the stream; its status says why.
                raise TimeoutError
        except BaseException:
            stream.cancel()
            raise
        return stream, frozenset(first.watching.uris)

    def _adopt(self, stream: Any, watched: frozenset[str]) -> None:
        """Replace the watch by another one, which is open already."""
        self._close()
        self._stream, self.watched = stream, watched
        self._reading = asyncio.create_task(self._read(stream), name="watched-resources")

    def _close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._stream.cancel()
        self._stream, self._reading, self.watched = None, None, frozenset()

    async def _read(self, stream: Any) -> None:
        with suppress(grpc.aio.AioRpcError):
            while isinstance(message := await stream.read(), WatchResourcesResponse):
                if message.updated_uri:
                    self._updated(message.updated_uri)
        if self._stream is stream:
            # Changes are missed from here on.
            self._stream, self._reading, self.watched = None, None, frozenset()
            self.wake()
