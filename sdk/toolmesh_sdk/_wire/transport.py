"""One call over the wire, for threads and for asyncio: deadline, token, trace, retries. Nothing here knows a service."""

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

from toolmesh_sdk._wire.connection import Tls, endpoint_of
from toolmesh_sdk._wire.retry import Attempts, RetryPolicy
from toolmesh_sdk._wire.status import error_from_rpc
from toolmesh_sdk._wire.trace import new_traceparent, trace_id_of
from toolmesh_sdk.errors import error_of

if TYPE_CHECKING:
    from toolmesh_sdk._wire.proof import ProofKey

Response = TypeVar("Response")
Token: TypeAlias = str | Callable[[], str] | None
Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]
DEFAULT_TIMEOUT = 30.0
# What a service of the mesh takes in one message. The transport there refuses more in words that look like an overload, which passes.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
# gRPC itself would fail at anything else in words of its own, some of them no error of a call at all.
_CARRIED = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a client calls, beside where: see `Client` for what each means."""

    token: Token = ""
    timeout: float = DEFAULT_TIMEOUT
    retry: RetryPolicy = RetryPolicy()
    traceparent: Callable[[], str] = new_traceparent
    proof_key: ProofKey | None = None
    key_secret: str | bytes = field(default=b"", repr=False)

    def begin(self, timeout: float | None, *, repeatable: bool, request: Any = None) -> Attempts:
        """Begin the attempts of one call. Raises PAYLOAD_TOO_LARGE for a request that no service takes."""
        if request is not None and request.ByteSize() > MAX_MESSAGE_BYTES:
            raise error_of(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(MAX_MESSAGE_BYTES)})
        return Attempts(self.retry, self.timeout if timeout is None else timeout, repeatable=repeatable)

    def metadata(self, traceparent: str) -> Metadata:
        """Return what travels beside a request. The token is read now, so that a renewed one is used at once.

        Raises TOKEN_MALFORMED for one that no header can carry; white space around it, as a file's last line has it, is not a part of it.
        """
        token = ((self.token() if callable(self.token) else self.token) or "").strip()
        if not _CARRIED.fullmatch(token):
            raise error_of(Reason.TOKEN_MALFORMED, trace_id=trace_id_of(traceparent))
        trace: Metadata = (("traceparent", traceparent),)
        return (*trace, ("authorization", f"Bearer {token}")) if token else trace


class Transport:
    """A channel and the rules for calling over it. Threads may share one."""

    def __init__(
        self, target: str, tls: Tls | None, options: Options, pause: Callable[[float], object] = time.sleep
    ) -> None:
        self.options, self.pause = options, pause
        endpoint = endpoint_of(target, tls)
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
        """Make one call and its retries. Raises ToolmeshError."""
        trace = traceparent or self.options.traceparent()
        attempts = self.options.begin(timeout, repeatable=repeatable, request=request)
        while True:
            try:
                return method(request, timeout=attempts.begin(), metadata=self.options.metadata(trace))
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            wait = attempts.wait_after(error)
            if wait is None:
                raise error
            self.pause(wait)

    def close(self) -> None:
        """Close the channel; calls under way fail."""
        self.channel.close()


class AsyncTransport:
    """The same for asyncio. It belongs to the event loop that first uses it."""

    def __init__(
        self,
        target: str,
        tls: Tls | None,
        options: Options,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.options, self.pause = options, pause
        self._endpoint = endpoint_of(target, tls)

    @cached_property
    def channel(self) -> grpc.aio.Channel:
        """The channel, opened on first use: gRPC ties it to the loop that is running then."""
        if self.options.proof_key is None:
            return self._endpoint.aio_channel()
        from toolmesh_sdk._wire.proof import AsyncStreamProver, AsyncUnaryProver

        kinds = (AsyncUnaryProver, AsyncStreamProver)
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
        """Make one call and its retries. Raises ToolmeshError; cancelling the task cancels the call."""
        trace = traceparent or self.options.traceparent()
        attempts = self.options.begin(timeout, repeatable=repeatable, request=request)
        while True:
            try:
                with failing_when_closed(trace):
                    return await method(request, timeout=attempts.begin(), metadata=self.options.metadata(trace))
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            wait = attempts.wait_after(error)
            if wait is None:
                raise error
            await self.pause(wait)

    async def close(self) -> None:
        """Close the channel; calls under way fail."""
        if "channel" in self.__dict__:
            await self.channel.close()


@contextmanager
def failing_when_closed(traceparent: str) -> Iterator[None]:
    """Fail with CANCELED what ends because its channel was closed. gRPC cancels such calls, and to asyncio that looks as if the task
    itself had been: whoever waits for it would take a lost call for one that nobody wants any more."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        words = "The client was closed before the answer came."
        raise error_of(Reason.CANCELED, message=words, trace_id=trace_id_of(traceparent), answered=False) from None
