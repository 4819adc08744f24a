"""The chain that every call passes, in one literal list. A handler below it never sees a call that the chain refused.

Each method is wrapped once, when it is added: a wrapper built per call would cost more than what it wraps.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from libs.common.auth.tokens import TokenVerifier
from libs.common.errors import MeshError, Reason
from libs.common.rpc.admission import Admission
from libs.common.rpc.call import Call, enter
from libs.common.rpc.caller import CallerCheck
from libs.common.rpc.failures import Failures
from libs.common.rpc.policy import Policy
from libs.common.rpc.telemetry import Telemetry, arrived
from libs.common.rpc.validate import Validate
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing

Context = grpc.aio.ServicerContext[Any, Any]


class Stage(Protocol):
    """One link: sees every call before its handler and after it. Two plain methods rather than a context manager, and only what
    has to wait is awaited, because the machinery of those would cost more per call than most stages do."""

    def enter(self, call: Call, context: Context) -> Awaitable[None] | None:
        """Look at the call before its handler; raise to refuse it. Returns what must be awaited for that, if anything."""
        ...

    def leave(
        self, call: Call, context: Context, error: BaseException | None
    ) -> BaseException | Awaitable[BaseException | None] | None:
        """Look at the outcome, if `enter` was passed; return the error that goes on outwards, or None, or what must be
        awaited for that."""
        ...


@dataclass(frozen=True)
class Chain:
    """The stages that surround a call, and the check of each message that it brings."""

    stages: tuple[Stage, ...]
    check: Callable[[Any], None]
    sample_ratio: float
    finish: Callable[[], None]
    """Has everything told about the calls that have ended."""


def build_chain(
    *,
    policy: Policy,
    verifier: TokenVerifier,
    trust_domain: str,
    log: Log,
    tracing: Tracing,
    sample_ratio: float,
    max_concurrent_calls: int,
) -> Chain:
    """Build the chain of a server. The order is the policy; each position has its reason."""
    telemetry = Telemetry(log, tracing)
    return Chain(
        stages=(
            # First in, last out: sees every call and its final status, refusals included.
            telemetry,
            # Directly inside, so that whatever the rest raises leaves as a status with an envelope.
            Failures(log),
            # Who asks must be known before anything is decided about the call.
            CallerCheck(policy, verifier, trust_domain),
            # May this caller call this method, and is there still time and room for it?
            Admission(policy, max_concurrent_calls),
        ),
        # Last: only messages of admitted callers are worth the work of checking them.
        check=Validate(),
        sample_ratio=sample_ratio,
        finish=telemetry.tell,
    )


class ChainedMethods(grpc.GenericRpcHandler):
    """Every method of a server with the chain around it, streams included. Not an interceptor: gRPC asks those anew, and
    asynchronously, for each call; this is one look into a dictionary."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        # By how many stages were entered: the way out of them, the innermost first.
        self._ways_out = [
            [stage.leave for stage in reversed(chain.stages[:entered])] for entered in range(len(chain.stages) + 1)
        ]
        self._methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Take the methods of a service, as generated code adds them to a server."""
        for name, handler in handlers.items():
            method = f"/{service}/{name}"
            self._methods[method] = self._wrap(method, handler)

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """Accept what generated code adds beside the methods themselves; it knows nothing that they do not."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """Return the method; for a name that no service has, one that says so through the chain."""
        method = handler_call_details.method
        arrived(handler_call_details.invocation_metadata)
        known = self._methods.get(method)
        # An unknown one is not remembered: such names are the caller's to invent, without bound.
        return known or self._wrap(method, grpc.unary_unary_rpc_method_handler(_unknown_method))

    def _wrap(self, method: str, handler: Any) -> grpc.RpcMethodHandler[Any, Any]:
        codecs = {
            "request_deserializer": _tolerant(handler.request_deserializer),
            "response_serializer": _as_sent(handler.response_serializer),
        }
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self._unary(method, handler.unary_unary), **codecs)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(self._stream(method, handler.unary_stream), **codecs)
        if handler.stream_unary:
            inner = self._unary(method, handler.stream_unary, incoming_stream=True)
            return grpc.stream_unary_rpc_method_handler(inner, **codecs)
        inner_stream = self._stream(method, handler.stream_stream, incoming_stream=True)
        return grpc.stream_stream_rpc_method_handler(inner_stream, **codecs)

    def _unary(self, method: str, inner: Any, *, incoming_stream: bool = False) -> Any:
        enters = [stage.enter for stage in self._chain.stages]

        async def unary(request: Any, context: Context) -> Any:
            call, entered, response = self._begin(method, context), 0, None
            error: BaseException | None = None
            try:
                for enter_stage in enters:
                    waiting = enter_stage(call, context)
                    if waiting is not None:
                        await waiting
                    entered += 1
                response = await inner(self._checked(request, incoming_stream), context)
            except BaseException as raised:
                error = raised
            await self._leave(call, context, entered, error)
            return response

        return unary

    def _stream(self, method: str, inner: Any, *, incoming_stream: bool = False) -> Any:
        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
            call, entered = self._begin(method, context), 0
            error: BaseException | None = None
            try:
                for stage in self._chain.stages:
                    if (waiting := stage.enter(call, context)) is not None:
                        await waiting
                    entered += 1
                responses = inner(self._checked(request, incoming_stream), context)
                if hasattr(responses, "__aiter__"):
                    async for response in responses:
                        yield response
                else:
                    # A handler in gRPC's other style: a coroutine that writes to the context itself.
                    await responses
            except BaseException as raised:
                error = raised
            await self._leave(call, context, entered, error)

        return stream

    def _begin(self, method: str, context: Context) -> Call:
        call = Telemetry.begin(method, context, self._chain.sample_ratio)
        enter(call)
        return call

    async def _leave(self, call: Call, context: Context, entered: int, error: BaseException | None) -> None:
        for leave_stage in self._ways_out[entered]:
            try:
                outcome = leave_stage(call, context, error)
                error = outcome if outcome is None or isinstance(outcome, BaseException) else await outcome
            except BaseException as raised:
                # A caller may leave while its refusal is on the way; the stages outside must hear of the end all the same.
                error = raised
        if error is not None:
            raise error

    def _checked(self, request: Any, incoming_stream: bool) -> Any:
        return self._checked_stream(request) if incoming_stream else self._check(request)

    def _check(self, request: Any) -> Any:
        if request is _UNDECODABLE:
            raise MeshError(Reason.INVALID_REQUEST, message="the bytes are not a message of this method")
        self._chain.check(request)
        return request

    async def _checked_stream(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            yield self._check(request)


_UNDECODABLE = object()


def _tolerant(decode: Any) -> Any:
    """Let bytes that are no message pass as such: refused by the chain they get an envelope, refused by gRPC they would not."""
    if decode is None:
        return None

    def tolerant(payload: bytes) -> Any:
        try:
            return decode(payload)
        except DecodeError:
            return _UNDECODABLE

    return tolerant


def _as_sent(encode: Any) -> Any:
    """Let an answer pass that its handler gives in the form it is sent in, because it gave the same before."""
    if encode is None:
        return None

    def sent(answer: Any) -> Any:
        return answer if type(answer) is bytes else encode(answer)

    return sent


async def _unknown_method(request: bytes, context: Context) -> bytes:
    raise MeshError(Reason.METHOD_NOT_FOUND)
