"""Makes unary calls with deadline, token, trace and retries, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import grpc
import grpc.aio
from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk._wire.connection import Tls, parse_endpoint
from toolmesh_sdk._wire.retry import Attempts, RetryBudget, RetryPolicy
from toolmesh_sdk._wire.status import error_from_rpc
from toolmesh_sdk._wire.trace import new_traceparent, trace_id_of
from toolmesh_sdk.errors import error_for_reason

if TYPE_CHECKING:
    from toolmesh_sdk._wire.proof import ProofKey

Response = TypeVar("Response")
Token: TypeAlias = str | Callable[[], str] | None
Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]
DEFAULT_TIMEOUT = 30.0
# The message limit of the services. Past it gRPC reports RESOURCE_EXHAUSTED, which looks like a retryable overload.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
# Characters that a header can hold; gRPC fails on others with errors of its own.
_HEADER_VALUE = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The call options of a client; `Client` describes them."""

    token: Token = ""
    timeout: float = DEFAULT_TIMEOUT
    retry: RetryPolicy = RetryPolicy()
    budget: RetryBudget = field(default_factory=RetryBudget, repr=False)
    traceparent: Callable[[], str] = new_traceparent
    proof_key: ProofKey | None = None
    key_secret: str | bytes = field(default=b"", repr=False)

    def start_attempts(self, timeout: float | None, *, repeatable: bool, request: Any = None) -> Attempts:
        """Start the attempts of one call. Raises PAYLOAD_TOO_LARGE for a request over the message limit."""
        if request is not None and request.ByteSize() > MAX_MESSAGE_BYTES:
            raise error_for_reason(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(MAX_MESSAGE_BYTES)})
        seconds = self.timeout if timeout is None else timeout
        return Attempts(self.retry, seconds, repeatable=repeatable, budget=self.budget)

    def metadata(self, traceparent: str) -> Metadata:
        """Return the metadata of a request. The token is read for every attempt, so that a renewed one is used at once.

        White space around the token is stripped. Raises TOKEN_MALFORMED if a header cannot hold it.
        """
        token = ((self.token() if callable(self.token) else self.token) or "").strip()
        if not _HEADER_VALUE.fullmatch(token):
            raise error_for_reason(Reason.TOKEN_MALFORMED, trace_id=trace_id_of(traceparent))
        trace: Metadata = (("traceparent", traceparent),)
        return (*trace, ("authorization", f"Bearer {token}")) if token else trace


class UnaryCall:
    """The attempts of one unary call; both transports use it."""

    def __init__(
        self, options: ClientOptions, request: Any, timeout: float | None, *, repeatable: bool, traceparent: str | None
    ) -> None:
        self._options, self.trace = options, traceparent or options.traceparent()
        self._attempts = options.start_attempts(timeout, repeatable=repeatable, request=request)

    def next_attempt(self) -> dict[str, Any]:
        """Count an attempt and return its timeout and metadata."""
        return {"timeout": self._attempts.start(), "metadata": self._options.metadata(self.trace)}

    def wait_after(self, failure: grpc.RpcError) -> float:
        """Return the wait before the next attempt. Raises ToolmeshError if there is none."""
        error = error_from_rpc(failure, trace_id_of(self.trace))
        wait = self._attempts.wait_after(error)
        if wait is None:
            raise error from None
        return wait


class Transport:
    """A channel and its call options. Threads may share one."""

    def __init__(
        self, target: str, tls: Tls | None, options: ClientOptions, pause: Callable[[float], object] = time.sleep
    ) -> None:
        self.options, self.pause = options, pause
        endpoint = parse_endpoint(target, tls)
        self.channel = endpoint.channel()
        if options.proof_key is not None:
            from toolmesh_sdk._wire.proof import Prover

            self.channel = grpc.intercept_channel(self.channel, Prover(options.proof_key, endpoint))

    def unary(
        self,
        method: Callable[..., Response],
        request: Any,
        timeout: float | None,
        *,
        repeatable: bool,
        traceparent: str | None = None,
    ) -> Response:
        """Make one call, with retries. Raises ToolmeshError."""
        call = UnaryCall(self.options, request, timeout, repeatable=repeatable, traceparent=traceparent)
        while True:
            try:
                return method(request, **call.next_attempt())
            except grpc.RpcError as failure:
                wait = call.wait_after(failure)
            self.pause(wait)

    def close(self) -> None:
        """Close the channel; pending calls fail."""
        self.channel.close()


class AsyncTransport:
    """A transport for asyncio. It belongs to the event loop that first uses it."""

    def __init__(
        self,
        target: str,
        tls: Tls | None,
        options: ClientOptions,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.options, self.pause = options, pause
        self._endpoint = parse_endpoint(target, tls)

    @cached_property
    def channel(self) -> grpc.aio.Channel:
        """The channel, opened on first use: gRPC binds it to the running loop."""
        if self.options.proof_key is None:
            return self._endpoint.aio_channel()
        from toolmesh_sdk._wire.proof import AsyncBidirectionalProver, AsyncStreamProver, AsyncUnaryProver

        kinds = (AsyncUnaryProver, AsyncStreamProver, AsyncBidirectionalProver)
        return self._endpoint.aio_channel([kind(self.options.proof_key, self._endpoint) for kind in kinds])

    async def unary(
        self,
        method: Callable[..., Awaitable[Response]],
        request: Any,
        timeout: float | None,
        *,
        repeatable: bool,
        traceparent: str | None = None,
    ) -> Response:
        """Make one call, with retries. Raises ToolmeshError; cancelling the task cancels the call."""
        call = UnaryCall(self.options, request, timeout, repeatable=repeatable, traceparent=traceparent)
        while True:
            try:
                with canceled_when_closed(call.trace):
                    return await method(request, **call.next_attempt())
            except grpc.RpcError as failure:
                wait = call.wait_after(failure)
            await self.pause(wait)

    async def close(self) -> None:
        """Close the channel; pending calls fail."""
        if "channel" in self.__dict__:
            await self.channel.close()


@contextmanager
def canceled_when_closed(traceparent: str) -> Iterator[None]:
    """Raise CANCELED for a call that ends because its channel was closed.

    gRPC raises CancelledError for it, as if the task itself had been cancelled.
    """
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        message = "The client was closed before the response."
        raise error_for_reason(
            Reason.CANCELED, message=message, trace_id=trace_id_of(traceparent), answered=False
        ) from None
