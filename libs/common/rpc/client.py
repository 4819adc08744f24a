"""Opens channels to peers: mutual TLS, the caller's token and trace, and a shrinking deadline."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import grpc
import grpc.aio

from libs.common.call_context import current_call, margin
from libs.common.errors import MeshError, Reason
from libs.common.rpc.limits import MAX_MESSAGE_BYTES
from libs.common.rpc.rotating_channel import RotatingChannel
from libs.common.rpc.tls_files import Credentials, TlsFiles, TlsMaterial
from libs.common.runtime.setting_types import Address, PeerAddress

Pair = tuple[str, str | bytes]
"""One metadata entry of a call."""


def channel_to(
    peer: str,
    address: Address | PeerAddress,
    credentials: Credentials,
    *,
    retry: Iterable[str] = (),
    service: str = "",
    for_callers: bool = True,
) -> grpc.aio.Channel:
    """Open a channel to the peer of this name. `retry` names the methods of `service` that may be retried.

    Without `for_callers`, calls carry nothing of the current call: they are the process's own, and cheaper. Calls that
    begin after the TLS files were replaced use the new ones.
    """
    options = [
        # The certificate names the service, not the machine it happens to run on.
        ("grpc.ssl_target_name_override", peer),
        ("grpc.service_config", service_config(service, retry)),
        # No proxy: gRPC would use the environment's proxy even for loopback.
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 1),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # Reconnect to a restarted peer at once, not after gRPC's usual two minutes.
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # A pod that replaces another has another address: look for it at once, not after gRPC's usual half a minute.
        ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ]

    def open_channel(tls: TlsMaterial) -> grpc.aio.Channel:
        made = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
        return grpc.aio.secure_channel(str(address), made, options=options)

    channel = RotatingChannel(TlsFiles(credentials), open_channel)
    return CallersChannel(channel) if for_callers else channel


def service_config(service: str, retry: Iterable[str]) -> str:
    """Return the gRPC service config: wait for the peer within the deadline; retry only safe methods."""
    methods: list[dict[str, Any]] = [{"name": [{}], "waitForReady": True}]
    names = [{"service": service, "method": method} for method in retry]
    if names:
        policy = {
            "maxAttempts": 4,
            "initialBackoff": "0.05s",
            "maxBackoff": "0.5s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"],
        }
        methods.append({"name": names, "waitForReady": True, "retryPolicy": policy})
    # A peer receives calls only while its health service reports serving: otherwise they wait, or go to another
    # replica. Only round_robin supports health checks.
    balancing = {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}
    return json.dumps({"methodConfig": methods, **balancing})


class CallersChannel(grpc.aio.Channel):
    """A channel whose calls carry the token, trace and deadline of the current call.

    Not an interceptor: gRPC runs interceptors in a task of their own.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def __aenter__(self) -> Self:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._channel.__aexit__(*error)  # type: ignore[arg-type]

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
        await self._channel.channel_ready()

    def unary_unary(self, *method: Any, **codecs: Any) -> Any:
        """Return the callable of a unary-unary method."""
        return _for_callers(self._channel.unary_unary(*method, **codecs))

    def unary_stream(self, *method: Any, **codecs: Any) -> Any:
        """Return the callable of a unary-stream method."""
        return _for_callers(self._channel.unary_stream(*method, **codecs))

    def stream_unary(self, *method: Any, **codecs: Any) -> Any:
        """Return the callable of a stream-unary method."""
        return _for_callers(self._channel.stream_unary(*method, **codecs))

    def stream_stream(self, *method: Any, **codecs: Any) -> Any:
        """Return the callable of a stream-stream method."""
        return _for_callers(self._channel.stream_stream(*method, **codecs))


def _for_callers(call: Callable[..., Any]) -> Callable[..., Any]:
    def made(
        request: Any = None, *, timeout: float | None = None, metadata: Sequence[Pair] | None = None, **options: Any
    ) -> Any:
        timeout, metadata = outgoing(timeout, metadata or ())
        return call(request, timeout=timeout, metadata=metadata, **options)

    return made


def outgoing(timeout: float | None, metadata: Sequence[Pair]) -> tuple[float | None, Sequence[Pair]]:
    """Return the timeout and the metadata of a call to a peer, with those of the current call added.

    Raises DEADLINE_EXCEEDED when no time would be left for the peer.
    """
    call = current_call()
    if call is None:
        return timeout, metadata
    sent = [*metadata, ("traceparent", call.trace.traceparent)]
    if call.trace.state:
        sent.append(("tracestate", call.trace.state))
    if call.request_id:
        sent.append(("x-request-id", call.request_id))
    if call.token:
        sent.append(("authorization", f"Bearer {call.token}"))
    return _timeout(timeout, call.remaining()), sent


def _timeout(asked: float | None, remaining: float | None) -> float | None:
    if remaining is None:
        return asked
    left = remaining - margin(remaining)
    if left <= 0:
        raise MeshError(Reason.DEADLINE_EXCEEDED)
    return left if asked is None else min(asked, left)
