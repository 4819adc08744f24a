"""The chain that every call passes. A handler below it never sees a call that the chain refused.

Each method is wrapped once, when it is added, and what the stages know of it beforehand is looked up then: a wrapper built per call would cost
more than what it wraps. For the same reason a call that ends well passes no more than the lines of one function.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
from libs.common.rpc.policy import Policy
from libs.common.rpc.telemetry import Telemetry, code_of, set_metadata
from libs.common.rpc.validation.validate import UNDECODABLE, validate
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing

Context = grpc.aio.ServicerContext[Any, Any]
# What methods are counted as that no service has: their names are the caller's to invent, without bound.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Chain:
    """The stages that surround a call, from the outside in, and the check of each message that it brings."""

    telemetry: Telemetry
    failures: ErrorMapping
    callers: CallerCheck
    admission: Admission
    check: Callable[[Any], None]

    def finish(self) -> None:
        """Have everything told about the calls that have ended."""
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
) -> Chain:
    """Build the chain of a server."""
    return Chain(
        telemetry=Telemetry(log, tracing, sample_ratio),
        failures=ErrorMapping(log),
        callers=CallerCheck(policy, verifier, trust_domain),
        admission=Admission(policy, max_concurrent_calls),
        check=validate,
    )


class _Reached(IntEnum):
    """How far into the chain a call came, and so which stages must hear of its end."""

    COUNTED = 0
    IDENTIFIED = 1
    ADMITTED = 2


# Looked up for every call.
_COUNTED, _IDENTIFIED, _ADMITTED = _Reached


class _Stages:
    """The stages as one method passes them. The order is the policy; each position has its reason."""

    def __init__(self, chain: Chain, method: str, counted_as: str) -> None:
        self._failures, self._callers, self._admission = chain.failures, chain.callers, chain.admission
        self._stays_open = chain.callers.stays_open(method)
        # First in, last out: sees every call and its final status, refusals included.
        self.begin, self._end = chain.telemetry.observer(method, counted_as)
        # Who asks must be known before anything is decided about the call.
        self.identify = chain.callers.identifying(method)
        # May this caller call this method, and is there still time and room for it?
        self.admit = chain.admission.admitting(method)
        # Last: only messages of admitted callers are worth the work of checking them.
        self.check = chain.check

    def left(self, call: Call) -> None:
        """Tell every stage that a call has ended well, the innermost first."""
        self._admission.leave(call, None)
        if self._stays_open:
            self._callers.leave(call, None)
        self._end(call, "OK")

    async def failed(self, call: Call, context: Context, reached: _Reached, error: BaseException) -> BaseException:
        """Tell the stages that a call passed how it ended; return what it ends with."""
        try:
            if reached >= _ADMITTED:
                error = self._admission.leave(call, error) or error
            if reached >= _IDENTIFIED:
                error = self._callers.leave(call, error) or error
            # Outside of those, so that whatever they raise leaves as a status with an envelope.
            error = await self._failures.translated(call, context, error)
        except BaseException as raised:
            # A caller may leave while its refusal is on the way; whoever counts must hear of the end all the same.
            error = raised
        self._end(call, code_of(context, error))
        return error


class ChainedMethods(grpc.GenericRpcHandler):
    """Every method of a server with the chain around it, streams included. Not an interceptor: gRPC asks those anew, and
    asynchronously, for each call; this is one look into a dictionary."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Take the methods of a service, as generated code adds them to a server."""
        for name, handler in handlers.items():
            method = f"/{service}/{name}"
            self._methods[method] = _wrapped(handler, _Stages(self._chain, method, counted_as=method))

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """Accept what generated code adds beside the methods themselves; it knows nothing that they do not."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """Return the method; for a name that no service has, one that says so through the chain."""
        set_metadata(handler_call_details.invocation_metadata)
        # An unknown one is not remembered.
        return self._methods.get(handler_call_details.method) or self._unknown(handler_call_details.method)

    def _unknown(self, method: str) -> grpc.RpcMethodHandler[Any, Any]:
        stages = _Stages(self._chain, method, counted_as=UNKNOWN)
        return _wrapped(grpc.unary_unary_rpc_method_handler(_unknown_method), stages)


def _wrapped(handler: Any, stages: _Stages) -> grpc.RpcMethodHandler[Any, Any]:
    codecs = {
        "request_deserializer": _tolerant(handler.request_deserializer),
        "response_serializer": _as_sent(handler.response_serializer),
    }
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(_unary(handler.unary_unary, stages), **codecs)
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(_stream(handler.unary_stream, stages), **codecs)
    if handler.stream_unary:
        inner = _unary(_each_checked(handler.stream_unary, stages.check), stages)
        return grpc.stream_unary_rpc_method_handler(inner, **codecs)
    inner = _stream(_each_checked(handler.stream_stream, stages.check), stages)
    return grpc.stream_stream_rpc_method_handler(inner, **codecs)


def _unary(inner: Any, stages: _Stages) -> Any:
    begin, identify, admit, check, left = stages.begin, stages.identify, stages.admit, stages.check, stages.left

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
            raise await stages.failed(call, context, reached, raised) from None
        left(call)
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
                # A handler in gRPC's other style: a coroutine that writes to the context itself.
                await responses
        except BaseException as raised:
            raise await stages.failed(call, context, reached, raised) from None
        stages.left(call)

    return stream


def _each_checked(inner: Any, check: Callable[[Any], None]) -> Any:
    """Have every message of a stream checked when it is taken."""

    async def checked(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            check(request)
            yield request

    return lambda requests, context: inner(checked(requests), context)


def _tolerant(decode: Any) -> Any:
    """Let bytes that are no message pass as such: refused by the chain they get an envelope, refused by gRPC they would not."""
    if decode is None:
        return None

    def tolerant(payload: bytes) -> Any:
        try:
            return decode(payload)
        except DecodeError:
            return UNDECODABLE

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
