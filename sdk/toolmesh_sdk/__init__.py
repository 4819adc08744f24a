"""Calls tools through Toolmesh. `Client` is for threads, `AsyncClient` for asyncio; every failure is a `ToolmeshError`.

Names are loaded when they are first used: the command line shows its help without paying for gRPC.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolmesh.common.v1.error_table import Reason as Reason

    from toolmesh_sdk._wire.connection import Tls as Tls
    from toolmesh_sdk._wire.envelope import ArgumentChange as ArgumentChange
    from toolmesh_sdk._wire.envelope import Compensation as Compensation
    from toolmesh_sdk._wire.envelope import Cost as Cost
    from toolmesh_sdk._wire.envelope import Deprecation as Deprecation
    from toolmesh_sdk._wire.envelope import Effect as Effect
    from toolmesh_sdk._wire.envelope import Shown as Shown
    from toolmesh_sdk._wire.envelope import Stored as Stored
    from toolmesh_sdk._wire.proof import ProofKey as ProofKey
    from toolmesh_sdk._wire.retry import RetryPolicy as RetryPolicy
    from toolmesh_sdk._wire.trace import new_traceparent as new_traceparent
    from toolmesh_sdk.aio import AsyncClient as AsyncClient
    from toolmesh_sdk.client import Client as Client
    from toolmesh_sdk.errors import ApprovalRequiredError as ApprovalRequiredError
    from toolmesh_sdk.errors import AuthorizationDeniedError as AuthorizationDeniedError
    from toolmesh_sdk.errors import ConflictError as ConflictError
    from toolmesh_sdk.errors import DeadlineExceededError as DeadlineExceededError
    from toolmesh_sdk.errors import InternalToolError as InternalToolError
    from toolmesh_sdk.errors import InvalidInputError as InvalidInputError
    from toolmesh_sdk.errors import PreconditionFailedError as PreconditionFailedError
    from toolmesh_sdk.errors import RateLimitedError as RateLimitedError
    from toolmesh_sdk.errors import ResourceExhaustedError as ResourceExhaustedError
    from toolmesh_sdk.errors import ToolmeshError as ToolmeshError
    from toolmesh_sdk.errors import ToolNotFoundError as ToolNotFoundError
    from toolmesh_sdk.errors import UpstreamFailureError as UpstreamFailureError
    from toolmesh_sdk.errors import Violation as Violation
    from toolmesh_sdk.group import GroupCall as GroupCall
    from toolmesh_sdk.group import Outcome as Outcome
    from toolmesh_sdk.keys import canonical_json as canonical_json
    from toolmesh_sdk.keys import derive_idempotency_key as derive_idempotency_key
    from toolmesh_sdk.preview import Precondition as Precondition
    from toolmesh_sdk.preview import Preview as Preview
    from toolmesh_sdk.result import Result as Result

_ERRORS = (
    *("ToolmeshError", "Violation", "InvalidInputError", "AuthorizationDeniedError", "ToolNotFoundError"),
    *("DeadlineExceededError", "RateLimitedError", "UpstreamFailureError", "InternalToolError"),
    *("ResourceExhaustedError", "PreconditionFailedError", "ConflictError", "ApprovalRequiredError"),
)
_PARTS = ("ArgumentChange", "Compensation", "Cost", "Deprecation", "Effect", "Shown", "Stored")
_HOMES = {
    **dict.fromkeys(_ERRORS, "toolmesh_sdk.errors"),
    **dict.fromkeys(_PARTS, "toolmesh_sdk._wire.envelope"),
    "AsyncClient": "toolmesh_sdk.aio",
    "Client": "toolmesh_sdk.client",
    "GroupCall": "toolmesh_sdk.group",
    "Outcome": "toolmesh_sdk.group",
    "Precondition": "toolmesh_sdk.preview",
    "Preview": "toolmesh_sdk.preview",
    "ProofKey": "toolmesh_sdk._wire.proof",
    "Reason": "toolmesh.common.v1.error_table",
    "Result": "toolmesh_sdk.result",
    "RetryPolicy": "toolmesh_sdk._wire.retry",
    "Tls": "toolmesh_sdk._wire.connection",
    "canonical_json": "toolmesh_sdk.keys",
    "derive_idempotency_key": "toolmesh_sdk.keys",
    "new_traceparent": "toolmesh_sdk._wire.trace",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"toolmesh_sdk has no {name}")
    return getattr(importlib.import_module(_HOMES[name]), name)
