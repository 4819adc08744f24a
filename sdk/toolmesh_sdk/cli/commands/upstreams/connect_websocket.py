"""`toolmesh connect websocket`: offers the operations of a WebSocket service, as a file describes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.commands.upstreams.adding import (
    Id,
    ReadOnly,
    SlowCallTime,
    add_and_wait,
    default_id,
    print_connected,
)
from toolmesh_sdk.cli.commands.upstreams.secret_options import metadata_secrets
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_operator_options

if TYPE_CHECKING:
    from toolmesh.registry.v1 import upstream_pb2 as upb

_WAIT_SECONDS = 60.0
_TEXTS = ("name", "description", "arguments_member", "id_member", "error_member")
_FLAGS = ("stream", "read_only")
_OBJECTS = {"input": "input_schema", "output": "output_schema", "constants": "constants", "end": "end"}


@report_errors
@add_operator_options(_WAIT_SECONDS)
def websocket(
    address: Annotated[str, typer.Argument(metavar="URL", help="The service, such as wss://feed.example.com/v1.")],
    operations: Annotated[Path, typer.Option("--operations", help="What can be asked of it, a JSON file.")],
    upstream_id: Id = "",
    subprotocol: Annotated[list[str] | None, typer.Option("--subprotocol", help="A subprotocol; repeatable.")] = None,
    secret: Annotated[
        list[str] | None, typer.Option("--secret", help="HEADER=NAME of a stored secret; repeatable.")
    ] = None,
    read_only: ReadOnly = None,
    slow_call_time: SlowCallTime = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Connect a WebSocket service by a description.

    A service does not describe its operations, so a file does: a JSON array of objects with name and input, a
    JSON Schema, and optionally description, output, constants, arguments_member, id_member, error_member, stream, end
    and read_only. Calls of operations that are not read_only need approval.

    \b
    Example:
      toolmesh connect websocket wss://feed.example.com/v1 --operations feed.json --secret authorization=feed_key
    """
    from toolmesh.registry.v1 import upstream_pb2 as upb

    if not address.startswith(("ws://", "wss://")):
        raise typer.BadParameter("is not a URL with wss:// or ws://", param_hint="URL")
    endpoint = upb.WebSocketEndpoint(
        url=address,
        secrets=metadata_secrets(secret or []),
        subprotocols=subprotocol or [],
        operations=_read(operations),
    )
    named = upstream_id or default_id(address.replace("ws", "http", 1))
    upstream = add_and_wait(named, upb.UpstreamEndpoint(websocket=endpoint), read_only or [], target, slow_call_time)
    print_connected(upstream, as_json=as_json)


def _read(path: Path) -> list[upb.WebSocketOperation]:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint="--operations") from None
    except ValueError:
        raise typer.BadParameter(f"{path} is not JSON", param_hint="--operations") from None
    if not isinstance(document, list) or not all(isinstance(each, dict) for each in document):
        raise typer.BadParameter(f"{path} is not an array of operations", param_hint="--operations")
    return operations_of(document)


def operations_of(described: list[dict[str, Any]]) -> list[upb.WebSocketOperation]:
    """Return the operations of a description. Raises BadParameter."""
    return [_operation(each, index) for index, each in enumerate(described)]


def _operation(described: dict[str, Any], index: int) -> upb.WebSocketOperation:
    from toolmesh.registry.v1 import upstream_pb2 as upb

    wrong = sorted(described.keys() - {*_TEXTS, *_FLAGS, *_OBJECTS})
    wrong += [key for key in _TEXTS if not isinstance(described.get(key, ""), str)]
    wrong += [key for key in _FLAGS if not isinstance(described.get(key, False), bool)]
    wrong += [key for key in _OBJECTS if not isinstance(described.get(key, {}), dict)]
    wrong += [key for key in ("name", "input") if key not in described]
    if wrong:
        message = f"operation {index} has no usable {', '.join(wrong)}"
        raise typer.BadParameter(message, param_hint="--operations")
    fields: dict[str, Any] = {key: described[key] for key in (*_TEXTS, *_FLAGS) if key in described}
    for key, field in _OBJECTS.items():
        if key in described:
            fields[field] = json.dumps(described[key]).encode()
    return upb.WebSocketOperation(**fields)
