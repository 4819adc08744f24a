"""ErrorMapping without an envelope, and envelopes of another age."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import status_pb2
from toolmesh.common.v1 import error_reason_pb2 as pb
from toolmesh_sdk import InvalidInputError, Reason, ToolmeshError, UpstreamFailureError
from toolmesh_sdk._wire.status import error_from_envelope, error_from_rpc

WITHOUT_ENVELOPE = {
    grpc.StatusCode.UNAVAILABLE: Reason.SERVICE_UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: Reason.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAUTHENTICATED: Reason.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED: Reason.PEER_NOT_ALLOWED,
    grpc.StatusCode.UNIMPLEMENTED: Reason.METHOD_NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Reason.OVERLOADED,
    grpc.StatusCode.INVALID_ARGUMENT: Reason.INVALID_REQUEST,
    grpc.StatusCode.CANCELLED: Reason.CANCELED,
    grpc.StatusCode.DATA_LOSS: Reason.INTERNAL,
}


@pytest.mark.parametrize("code", WITHOUT_ENVELOPE)
async def test_a_bare_status_gets_the_reason_of_its_code(
    code: grpc.StatusCode, drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    mesh.answer("Invoke", code)
    with pytest.raises(ToolmeshError) as caught:
        await drive(serve()).do("call", "echo")
    assert caught.value.reason is WITHOUT_ENVELOPE[code]
    assert caught.value.answered is False
    assert caught.value.metadata == {"transport": "said by the transport"}
    assert len(caught.value.trace_id) == 32


async def test_a_refused_connection_is_service_unavailable(drive: Any) -> None:
    with pytest.raises(UpstreamFailureError) as caught:
        await drive("127.0.0.1:1").do("call", "echo")
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    assert caught.value.answered is False


def test_a_reason_of_a_newer_mesh_keeps_what_it_says() -> None:
    envelope = pb.ErrorEnvelope(code="E3999", category=pb.ERROR_CATEGORY_INVALID_INPUT, message="new", retryable=False)
    envelope.MergeFromString(b"\x08\x9f\x1f")  # reason = 3999
    error = error_from_envelope(envelope)
    assert isinstance(error, InvalidInputError)
    assert (error.code, error.message, error.retryable, error.reason) == ("E3999", "new", False, Reason.INTERNAL)


def test_a_category_of_a_newer_mesh_is_read_by_the_known_reason() -> None:
    envelope = pb.ErrorEnvelope(reason=pb.ERROR_REASON_TOOL_NOT_FOUND)
    envelope.MergeFromString(b"\x18\x63")  # category = 99
    error = error_from_envelope(envelope)
    assert (error.category, error.code) == ("TOOL_NOT_FOUND", "E3101")


class Failed(grpc.RpcError):
    """A failed call with these details."""

    def __init__(self, details: bytes) -> None:
        self._details = details

    def trailing_metadata(self) -> Any:
        return (("grpc-status-details-bin", self._details),)

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return ""


def test_details_that_are_not_ours_do_not_count_as_an_answer() -> None:
    foreign = any_pb2.Any(type_url="type.googleapis.com/other.Detail", value=b"x")
    for details in (b"\xff\xff not a message", status_pb2.Status(details=[foreign]).SerializeToString()):
        error = error_from_rpc(Failed(details), "trace")
        assert (error.reason, error.answered, error.trace_id) == (Reason.SERVICE_UNAVAILABLE, False, "trace")
