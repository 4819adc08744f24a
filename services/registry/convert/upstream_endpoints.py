"""Conversions of the parts of endpoints."""

from __future__ import annotations

from collections.abc import Iterable

from toolmesh.registry.v1 import upstream_pb2

from services.registry.domain.upstreams.upstream import MetadataSecret, WebSocketEndpoint, WebSocketOperation


def metadata_secrets_of(messages: Iterable[upstream_pb2.MetadataSecret]) -> tuple[MetadataSecret, ...]:
    return tuple(MetadataSecret(each.key, each.secret, each.prefix) for each in messages)


def metadata_secrets(secrets: Iterable[MetadataSecret]) -> list[upstream_pb2.MetadataSecret]:
    return [upstream_pb2.MetadataSecret(key=each.key, secret=each.secret, prefix=each.prefix) for each in secrets]


def websocket_of(message: upstream_pb2.WebSocketEndpoint) -> WebSocketEndpoint:
    """Read a WebSocket service."""
    return WebSocketEndpoint(
        url=message.url,
        operations=tuple(_operation_of(each) for each in message.operations),
        secrets=metadata_secrets_of(message.secrets),
        subprotocols=tuple(message.subprotocols),
    )


def websocket(endpoint: WebSocketEndpoint) -> upstream_pb2.WebSocketEndpoint:
    """Write a WebSocket service."""
    return upstream_pb2.WebSocketEndpoint(
        url=endpoint.url,
        secrets=metadata_secrets(endpoint.secrets),
        subprotocols=endpoint.subprotocols,
        operations=[_operation(each) for each in endpoint.operations],
    )


def _operation_of(message: upstream_pb2.WebSocketOperation) -> WebSocketOperation:
    return WebSocketOperation(
        name=message.name,
        input_schema=_text(message.input_schema),
        description=message.description,
        output_schema=_text(message.output_schema),
        constants=_text(message.constants),
        arguments_member=message.arguments_member,
        id_member=message.id_member,
        error_member=message.error_member,
        stream=message.stream,
        end=_text(message.end),
        read_only=message.read_only,
    )


def _operation(operation: WebSocketOperation) -> upstream_pb2.WebSocketOperation:
    return upstream_pb2.WebSocketOperation(
        name=operation.name,
        input_schema=operation.input_schema.encode(),
        description=operation.description,
        output_schema=operation.output_schema.encode(),
        constants=operation.constants.encode(),
        arguments_member=operation.arguments_member,
        id_member=operation.id_member,
        error_member=operation.error_member,
        stream=operation.stream,
        end=operation.end.encode(),
        read_only=operation.read_only,
    )


def _text(content: bytes) -> str:
    """Return JSON as text. Bytes that are no text are refused as no JSON."""
    return content.decode(errors="replace")
