"""What operations of WebSocket services send and understand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toolmesh.registry.v1 import upstream_pb2 as upb

from services.executor.adapters.upstreams.websocket.operations import MessageRole, Operation, read_operation


def operation(**fields: Any) -> Operation:
    return read_operation(upb.WebSocketOperation(**{"name": "ask", "input_schema": b"{}", **fields}))


def test_arguments_are_members_or_have_one() -> None:
    assert json.loads(operation().message({"a": 1}, "7")) == {"a": 1}
    made = operation(constants=b'{"type":"ask"}', arguments_member="params", id_member="id")
    assert json.loads(made.message({"a": 1}, "7")) == {"type": "ask", "params": {"a": 1}, "id": "7"}


def test_what_is_fixed_is_not_replaced() -> None:
    made = operation(constants=b'{"type":"ask"}', id_member="id")
    assert json.loads(made.message({"type": "drop", "id": "mine"}, "7")) == {"type": "ask", "id": "7"}


@pytest.mark.parametrize(
    ("message", "role"),
    [
        ({"id": "7", "result": 1}, MessageRole.ANSWER),
        ({"id": "7", "error": None}, MessageRole.ANSWER),
        ({"id": "7", "error": {}}, MessageRole.ERROR),
        ({"id": "7", "type": "complete", "more": 1}, MessageRole.END),
        ({"id": "8", "result": 1}, MessageRole.OTHER),
        ({"type": "complete"}, MessageRole.OTHER),
        ([1], MessageRole.OTHER),
        ("7", MessageRole.OTHER),
    ],
)
def test_each_message_has_a_role(message: Any, role: MessageRole) -> None:
    made = operation(id_member="id", error_member="error", end=b'{"type":"complete"}')
    assert made.role_of(message, "7") is role


def test_without_an_id_the_first_message_is_the_answer() -> None:
    assert operation().role_of([1], "7") is MessageRole.ANSWER


def test_every_part_of_a_description_is_in_its_digest() -> None:
    digests = {
        operation(**fields).digest
        for fields in (
            {},
            {"description": "Asks."},
            {"input_schema": b'{"type":"object"}'},
            {"output_schema": b"{}"},
            {"constants": b'{"a":1}'},
            {"arguments_member": "a"},
            {"id_member": "a"},
            {"error_member": "a"},
            {"stream": True},
            {"end": b'{"a":1}'},
            {"read_only": True},
        )
    }
    assert len(digests) == 11
