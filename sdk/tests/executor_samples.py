"""Answers of the executor that several tests script."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import result_envelope_pb2 as epb

REF = "results/0190a1df-0000-7000-8000-000000000001"
SECRET = "access-1"
CONTENT = json.dumps({"rows": list(range(2000))}).encode()
PREVIEW = pb.PreviewInvocationResponse(
    invocation_id="inv-p",
    changes=[epb.ObservedEffect(resource="file:a.md", operation="delete", source=epb.EFFECT_SOURCE_REPORTED)],
    preconditions=[
        pb.Precondition(description="it is there", holds=True),
        pb.Precondition(description="it is free", holds=False),
    ],
    impact="One file would be gone.",
    predicted_result=b'{"n": 18446744073709551615}',
    approval_required=True,
    preview_token="shown-1",
    expire_time=Timestamp(seconds=1_800_000_000),
    tool_version="tools/acme.wipe/versions/1.0.0",
    trace_id="t" * 32,
)


def digest_of(content: bytes) -> str:
    """The digest as the contract writes it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def envelope(content: Any = None, **fields: Any) -> epb.ResultEnvelope:
    """A result; without content, one that has none embedded."""
    payload = b"" if content is None else json.dumps(content).encode()
    status = fields.pop("status", epb.RESULT_STATUS_SUCCEEDED)
    return epb.ResultEnvelope(invocation_id="inv-1", status=status, structured_content=payload, **fields)


def persisted(content: bytes = CONTENT, **changes: Any) -> epb.PersistedResult:
    """The reference to a stored result."""
    fields: dict[str, Any] = {
        "ref": REF,
        "size_bytes": len(content),
        "digest": digest_of(content),
        "media_type": "application/json",
        "preview": content[:16],
        "expire_time": Timestamp(seconds=1_800_000_000),
        "access_token": SECRET,
    }
    return epb.PersistedResult(**{**fields, **changes})


def stored_answer(**changes: Any) -> pb.InvokeResponse:
    """The answer of a call whose result is stored."""
    return pb.InvokeResponse(result=envelope(persisted=[persisted(**changes)]))


def piece(content: bytes, begin: int, end: int, /, **changes: Any) -> pb.FetchResultResponse:
    """A part of a stored result."""
    fields = {"content": content[begin:end], "offset": begin, "size_bytes": len(content), "digest": digest_of(content)}
    return pb.FetchResultResponse(**{**fields, **changes})


def from_offset(content: bytes = CONTENT, step: int = 4096) -> Callable[[Any], list[Any]]:
    """A reply that streams a stored result from where it is asked for."""
    return lambda request: [
        piece(content, begin, begin + step) for begin in range(request.offset, len(content) or 1, step)
    ]
