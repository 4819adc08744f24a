"""A channel to a peer that is opened again when the TLS files of this process were replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import grpc
import grpc.aio

from libs.common.rpc.tls_files import TlsFiles, TlsMaterial


class RotatingChannel(grpc.aio.Channel):
    """Calls go through the newest channel; those that run stay on the one on which they began.

    A replaced channel is not closed: gRPC would cancel its streams, which their readers could not tell from a
    cancellation of their own. It ends with its last call.
    """

    def __init__(self, files: TlsFiles, open_channel: Callable[[TlsMaterial], grpc.aio.Channel]) -> None:
        self._files, self._open = files, open_channel
        self._channel = open_channel(files.current)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def current(self) -> grpc.aio.Channel:
        """Return the channel for a new call."""
        if (material := self._files.renewed()) is not None:
            self._channel = self._open(material)
        return self._channel

    async def close(self, grace: float | None = None) -> None:
        """Close the channel; running calls have `grace` seconds to end."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the connectivity state."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Return when the state changes."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Return when the channel is ready."""
        await self.current().channel_ready()

    def unary_unary(self, *method: Any, **codecs: Any) -> Any:
        """Return the callable of a unary-unary method."""
        return _Method(self, lambda channel: channel.unary_unary(*method, **codecs))

    def unary_stream(self, *method: Any, **codecs: Any) -> Any:
        """Return the callable of a unary-stream method."""
        return _Method(self, lambda channel: channel.unary_stream(*method, **codecs))

    def stream_unary(self, *method: Any, **codecs: Any) -> Any:
        """Return the callable of a stream-unary method."""
        return _Method(self, lambda channel: channel.stream_unary(*method, **codecs))

    def stream_stream(self, *method: Any, **codecs: Any) -> Any:
        """Return the callable of a stream-stream method."""
        return _Method(self, lambda channel: channel.stream_stream(*method, **codecs))


class _Method:
    """The callable of one method, bound again when the channel was replaced."""

    __slots__ = ("_bind", "_bound", "_call", "_owner")

    def __init__(self, owner: RotatingChannel, bind: Callable[[grpc.aio.Channel], Any]) -> None:
        self._owner, self._bind = owner, bind
        self._bound = owner._channel
        self._call = bind(self._bound)

    def __call__(self, *request: Any, **options: Any) -> Any:
        channel = self._owner.current()
        if channel is not self._bound:
            self._bound, self._call = channel, self._bind(channel)
        return self._call(*request, **options)
