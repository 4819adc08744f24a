"""The forwarded methods as callers see them, and their handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc.aio
from google.protobuf.message_factory import GetMessageClass
from toolmesh.comments import COMMENTS

from services.gateway.convert import JSON_FIELDS, checked_size, message_json
from services.gateway.forwarded.request import RequestBuilder
from services.gateway.forwarded.schema import RequestSchemas, fields_of, is_required
from services.gateway.forwarded.table import FORWARDED, Forwarded
from services.gateway.method import Method, Param
from services.gateway.protojson import key_of

Handler = Callable[[dict[str, Any]], Awaitable[Any]]
_schemas = RequestSchemas(JSON_FIELDS)


def methods() -> tuple[Method, ...]:
    """Return the methods, described by the comments of the contract."""
    return tuple(_method(name, forwarded) for name, forwarded in FORWARDED.items())


def handlers(channels: Mapping[str, grpc.aio.Channel]) -> dict[str, Handler]:
    """Return the handler of each method. `channels` are those of the peers, by name."""
    return {name: _handler(forwarded, channels[forwarded.peer]) for name, forwarded in FORWARDED.items()}


def _method(name: str, forwarded: Forwarded) -> Method:
    rpc = forwarded.rpc
    params = tuple(
        Param(key_of(field), COMMENTS[field.full_name], _schemas.of(field), required=is_required(field))
        for field in fields_of(rpc.input_type, forwarded.inline)
    )
    answer = ", ".join(f"`{key_of(field)}`: {COMMENTS[field.full_name]}" for field in rpc.output_type.fields)
    return Method(name, COMMENTS[rpc.full_name], answer, params)


def _handler(forwarded: Forwarded, channel: grpc.aio.Channel) -> Handler:
    rpc = forwarded.rpc
    call = channel.unary_unary(
        forwarded.path,
        request_serializer=GetMessageClass(rpc.input_type).SerializeToString,
        response_deserializer=GetMessageClass(rpc.output_type).FromString,
    )
    build = RequestBuilder(rpc.input_type, JSON_FIELDS, forwarded.inline).build

    async def handle(params: dict[str, Any]) -> Any:
        return message_json(await call(checked_size(build(params))))

    return handle
