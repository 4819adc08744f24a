"""Channels to peers: mutual TLS, the caller's token and trace, and a deadline that shrinks at every hop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio

from libs.common.errors import MeshError, Reason
from libs.common.rpc.call import current_call, margin
from libs.common.rpc.limits import MAX_MESSAGE_BYTES
from libs.common.settings import Address


class Credentials(Protocol):
    """The files that prove who this process is."""

    @property
    def tls_cert(self) -> Path: ...
    @property
    def tls_key(self) -> Path: ...
    @property
    def tls_ca(self) -> Path: ...


def channel_to(
    peer: str,
    address: Address,
    credentials: Credentials,
    *,
    retry: Iterable[str] = (),
    service: str = "",
    for_callers: bool = True,
) -> grpc.aio.Channel:
    """Open a channel to the peer of this name. `retry` names the methods of `service` that may be repeated safely. One that is not
    for callers carries nothing of the call that is being served: it is this process's own business, and cheaper."""
    tls = grpc.ssl_channel_credentials(
        credentials.tls_ca.read_bytes(), credentials.tls_key.read_bytes(), credentials.tls_cert.read_bytes()
    )
    options = [
        # The certificate names the service, not the machine it happens to run on.
        ("grpc.ssl_target_name_override", peer),
        ("grpc.service_config", service_config(service, retry)),
        ("grpc.enable_retries", 1),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # A restarted peer must be found again within a moment, not after gRPC's usual two minutes.
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]
    propagating = [PropagateUnary(), PropagateUnaryStream(), PropagateStreams()] if for_callers else None
    return grpc.aio.secure_channel(str(address), tls, options=options, interceptors=propagating)


def service_config(service: str, retry: Iterable[str]) -> str:
    """Return the gRPC service config: wait for the peer within the deadline; repeat only what is safe to repeat."""
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
    # The peer's own word about its health decides whether it gets calls: before it is ready, and once it is about to end, they
    # wait for it or go to another replica. Only this policy listens to it.
    balancing = {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}
    return json.dumps({"methodConfig": methods, **balancing})


class PropagateUnary(grpc.aio.UnaryUnaryClientInterceptor):
    """Passes token, trace and deadline on."""

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(outgoing(client_call_details), request)


class PropagateUnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    """Passes token, trace and deadline on."""

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(outgoing(client_call_details), request)


class PropagateStreams(grpc.aio.StreamStreamClientInterceptor):
    """Passes token, trace and deadline on."""

    async def intercept_stream_stream(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: AsyncIterable[Any] | Iterable[Any],
    ) -> Any:
        return await continuation(outgoing(client_call_details), request_iterator)


def outgoing(details: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
    """Return the details of a call to a peer, made for the call that is being served. Without one, they stay as they are.

    Raises DEADLINE_EXCEEDED when nothing would be left for the peer: a call that cannot end in time is not begun.
    """
    call = current_call()
    if call is None:
        return details
    metadata = grpc.aio.Metadata(*(details.metadata or ()))
    metadata.add("traceparent", call.trace.traceparent)
    if call.trace.state:
        metadata.add("tracestate", call.trace.state)
    if call.request_id:
        metadata.add("x-request-id", call.request_id)
    if call.token:
        metadata.add("authorization", f"Bearer {call.token}")
    return grpc.aio.ClientCallDetails(
        details.method,
        _timeout(details.timeout, call.remaining()),
        metadata,
        details.credentials,
        details.wait_for_ready,
    )


def _timeout(asked: float | None, remaining: float | None) -> float | None:
    if remaining is None:
        return asked
    left = remaining - margin(remaining)
    if left <= 0:
        raise MeshError(Reason.DEADLINE_EXCEEDED)
    return left if asked is None else min(asked, left)
