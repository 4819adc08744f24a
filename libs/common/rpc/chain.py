"""The chain of stages around every call. A handler never sees a call that the chain refused.

Each method is wrapped once, when it is added; a wrapper per call would cost more than the call. For the same reason a
successful call passes through one function.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from libs.common.auth.tokens import TokenVerifier
from libs.common.call_context import Call
from libs.common.errors import MeshError, Reason
from libs.common.rpc.admission import Admission
from libs.common.rpc.caller import CallerCheck
from libs.common.rpc.error_mapping import ErrorMapping
from libs.common.rpc.limits import MAX_MESSAGE_BYTES
from libs.common.rpc.policy import Policy
from libs.common.rpc.telemetry import Telemetry, code_of, set_metadata
from libs.common.rpc.validation.validate import OVERSIZED, UNDECODABLE, validate
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing

Context = grpc.aio.ServicerContext[Any, Any]
# The metrics label of unknown methods: callers could invent any number of names.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Chain:
    """The stages around a call, from the outside in, and the check of each message."""

    telemetry: Telemetry
    failures: ErrorMapping
    callers: CallerCheck
    admission: Admission
    check: Callable[[Any], None]

    def finish(self) -> None:
        """Record all ended calls."""
        self.telemetry.flush()


def build_chain(
    *,
    policy: Policy,
    verifier: TokenVerifier,
    trust_domain: str,
    log: Log,
    tracing: Tracing,
    sample_ratio: float,
    max_concurrent_calls: int,
    public_origins: Collection[str] = (),
) -> Chain:
    """Build the chain of a server. Without public origins, no proof of a caller behind the edge is accepted."""
    return Chain(
        telemetry=Telemetry(log, tracing, sample_ratio),
        failures=ErrorMapping(log),
        callers=CallerCheck(policy, verifier, trust_domain, public_origins),
        admission=Admission(policy, max_concurrent_calls),
        check=validate,
    )


class _Progress(IntEnum):
    """How far a call came, and so which stages must learn of its end."""

    COUNTED = 0
    IDENTIFIED = 1
    ADMITTED = 2


# Module constants, because every call reads them.
_COUNTED, _IDENTIFIED, _ADMITTED = _Progress


class _Stages:
    """The stages of one method. Each position has its reason."""

    def __init__(self, chain: Chain, method: str, counted_as: str) -> None:
        self._failures, self._callers, self._admission = chain.failures, chain.callers, chain.admission
        self._stays_open = chain.callers.stays_open(method)
        # First in, last out: records every call with its final status, refusals included.
        self.begin, self._end = chain.telemetry.observer(method, counted_as)
        # The caller must be known before anything is decided about the call.
        self.identify = chain.callers.identifier_of(method)
        # Is there time and capacity?
        self.admit = chain.admission.admission_of(method)
        # Last: only messages of admitted callers are worth checking.
        self.check = chain.check

    def succeed(self, call: Call) -> None:
        """End a successful call in every stage, the innermost first."""
        self._admission.leave(call, None)
        if self._stays_open:
            self._callers.leave(call, None)
        self._end(call, "OK")

    async def fail(self, call: Call, context: Context, reached: _Progress, error: BaseException) -> BaseException:
        """End a failed call in the stages that it passed; return the exception that it ends with."""
        try:
            if reached >= _ADMITTED:
                error = self._admission.leave(call, error) or error
            if reached >= _IDENTIFIED:
                error = self._callers.leave(call, error) or error
            # Outside of those, so that their exceptions become a status with an envelope too.
            error = await self._failures.abort(call, context, error)
        except BaseException as raised:
            # The caller may cancel while its refusal is sent; the call must still be counted.
            error = raised
        self._end(call, code_of(context, error))
        return error


class ChainedMethods(grpc.GenericRpcHandler):
    """All methods of a server with the chain around them, streams included.

    Not an interceptor: gRPC calls those for each call, asynchronously; this is a dictionary lookup.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Add the methods of a service, as generated code does."""
        for name, handler in handlers.items():
            method = f"/{service}/{name}"
            self._methods[method] = _wrap(handler, _Stages(self._chain, method, counted_as=method))

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """Ignore the generic handlers of generated code; they duplicate the methods."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """Return the handler of a method; for an unknown one, a handler that refuses through the chain."""
        set_metadata(handler_call_details.invocation_metadata)
        # Handlers of unknown methods are not cached.
        return self._methods.get(handler_call_details.method) or self._unknown(handler_call_details.method)

    def _unknown(self, method: str) -> grpc.RpcMethodHandler[Any, Any]:
        stages = _Stages(self._chain, method, counted_as=UNKNOWN)
        return _wrap(grpc.unary_unary_rpc_method_handler(_unknown_method), stages)


def _wrap(handler: Any, stages: _Stages) -> grpc.RpcMethodHandler[Any, Any]:
    codecs = {
        "request_deserializer": _decode_or_mark(handler.request_deserializer),
        "response_serializer": _encode_unless_bytes(handler.response_serializer),
    }
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(_unary(handler.unary_unary, stages), **codecs)
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(_stream(handler.unary_stream, stages), **codecs)
    if handler.stream_unary:
        inner = _unary(_check_each(handler.stream_unary, stages.check), stages)
        return grpc.stream_unary_rpc_method_handler(inner, **codecs)
    inner = _stream(_check_each(handler.stream_stream, stages.check), stages)
    return grpc.stream_stream_rpc_method_handler(inner, **codecs)


def _unary(inner: Any, stages: _Stages) -> Any:
    begin, identify, admit, check, succeed = stages.begin, stages.identify, stages.admit, stages.check, stages.succeed

    async def unary(request: Any, context: Context) -> Any:
        call, reached = begin(context), _COUNTED
        try:
            waiting = identify(call, context)
            if waiting is not None:
                await waiting
            reached = _IDENTIFIED
            admit(call)
            reached = _ADMITTED
            check(request)
            response = await inner(request, context)
        except BaseException as raised:
            raise await stages.fail(call, context, reached, raised) from None
        succeed(call)
        return response

    return unary


def _stream(inner: Any, stages: _Stages) -> Any:
    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        call, reached = stages.begin(context), _COUNTED
        try:
            if (waiting := stages.identify(call, context)) is not None:
                await waiting
            reached = _IDENTIFIED
            stages.admit(call)
            reached = _ADMITTED
            stages.check(request)
            responses = inner(request, context)
            if hasattr(responses, "__aiter__"):
                async for response in responses:
                    yield response
            else:
                # gRPC's other handler style: a coroutine that writes to the context.
                await responses
        except BaseException as raised:
            raise await stages.fail(call, context, reached, raised) from None
        stages.succeed(call)

    return stream


def _check_each(inner: Any, check: Callable[[Any], None]) -> Any:
    """Check every message of a stream when it is read."""

    async def checked(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            check(request)
            yield request

    return lambda requests, context: inner(checked(requests), context)


def _decode_or_mark(decode: Any) -> Any:
    """Return a decoder that marks undecodable and oversized bytes: refused by the chain, the call gets an error
    envelope."""
    if decode is None:
        return None

    def decode_request(payload: bytes) -> Any:
        if len(payload) > MAX_MESSAGE_BYTES:
            return OVERSIZED
        try:
            return decode(payload)
        except DecodeError:
            return UNDECODABLE

    return decode_request


def _encode_unless_bytes(encode: Any) -> Any:
    """Return an encoder that passes serialized (cached) responses through."""
    if encode is None:
        return None

    def encode_response(response: Any) -> Any:
        return response if type(response) is bytes else encode(response)

    return encode_response


async def _unknown_method(request: bytes, context: Context) -> bytes:
    raise MeshError(Reason.METHOD_NOT_FOUND)
