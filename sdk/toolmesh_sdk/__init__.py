"""The Toolmesh client library: `Client` for threads, `AsyncClient` for asyncio; every failure is a `ToolmeshError`.

Public names are here and in client, aio, discovery, errors, result, group, preview, usage, manifest, keys, jobs,
streams and token_request; `_wire` is private. Names are loaded on first use, so that the command line shows its help
without importing gRPC.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolmesh.common.v1.error_table import Reason as Reason

    from toolmesh_sdk._wire.trace import new_traceparent as new_traceparent
    from toolmesh_sdk.aio import AsyncClient as AsyncClient
    from toolmesh_sdk.client import Client as Client
    from toolmesh_sdk.client import ProofKey as ProofKey
    from toolmesh_sdk.client import RecordFilters as RecordFilters
    from toolmesh_sdk.client import RetryPolicy as RetryPolicy
    from toolmesh_sdk.client import Tls as Tls
    from toolmesh_sdk.discovery import FoundTool as FoundTool
    from toolmesh_sdk.discovery import LoadedSchemas as LoadedSchemas
    from toolmesh_sdk.discovery import LookAlike as LookAlike
    from toolmesh_sdk.discovery import SearchResult as SearchResult
    from toolmesh_sdk.discovery import Surface as Surface
    from toolmesh_sdk.discovery import ToolSchema as ToolSchema
    from toolmesh_sdk.discovery import ToolSet as ToolSet
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
    from toolmesh_sdk.jobs import AsyncJob as AsyncJob
    from toolmesh_sdk.jobs import Callback as Callback
    from toolmesh_sdk.jobs import Job as Job
    from toolmesh_sdk.keys import canonical_json as canonical_json
    from toolmesh_sdk.keys import derive_idempotency_key as derive_idempotency_key
    from toolmesh_sdk.preview import Precondition as Precondition
    from toolmesh_sdk.preview import Preview as Preview
    from toolmesh_sdk.result import ArgumentChange as ArgumentChange
    from toolmesh_sdk.result import CallWarning as CallWarning
    from toolmesh_sdk.result import Compensation as Compensation
    from toolmesh_sdk.result import Cost as Cost
    from toolmesh_sdk.result import DeclaredEffect as DeclaredEffect
    from toolmesh_sdk.result import Deprecation as Deprecation
    from toolmesh_sdk.result import Effect as Effect
    from toolmesh_sdk.result import RenderedResult as RenderedResult
    from toolmesh_sdk.result import Result as Result
    from toolmesh_sdk.result import StoredResult as StoredResult
    from toolmesh_sdk.streams import AsyncJobStream as AsyncJobStream
    from toolmesh_sdk.streams import JobStream as JobStream
    from toolmesh_sdk.token_request import Bounds as Bounds
    from toolmesh_sdk.usage import UsageReader as UsageReader

_ERRORS = (
    *("ToolmeshError", "Violation", "InvalidInputError", "AuthorizationDeniedError", "ToolNotFoundError"),
    *("DeadlineExceededError", "RateLimitedError", "UpstreamFailureError", "InternalToolError"),
    *("ResourceExhaustedError", "PreconditionFailedError", "ConflictError", "ApprovalRequiredError"),
)
_RESULT_PARTS = (
    "ArgumentChange",
    "CallWarning",
    "Compensation",
    "Cost",
    "DeclaredEffect",
    "Deprecation",
    "Effect",
    "RenderedResult",
    "StoredResult",
)
_DISCOVERY = ("FoundTool", "LoadedSchemas", "LookAlike", "SearchResult", "Surface", "ToolSchema", "ToolSet")
_MODULES = {
    **dict.fromkeys(_DISCOVERY, "toolmesh_sdk.discovery"),
    **dict.fromkeys(_ERRORS, "toolmesh_sdk.errors"),
    **dict.fromkeys(_RESULT_PARTS, "toolmesh_sdk.result"),
    "AsyncClient": "toolmesh_sdk.aio",
    "Bounds": "toolmesh_sdk.token_request",
    "Client": "toolmesh_sdk.client",
    "AsyncJob": "toolmesh_sdk.jobs",
    "Callback": "toolmesh_sdk.jobs",
    "Job": "toolmesh_sdk.jobs",
    "AsyncJobStream": "toolmesh_sdk.streams",
    "JobStream": "toolmesh_sdk.streams",
    "GroupCall": "toolmesh_sdk.group",
    "Outcome": "toolmesh_sdk.group",
    "Precondition": "toolmesh_sdk.preview",
    "Preview": "toolmesh_sdk.preview",
    "ProofKey": "toolmesh_sdk.client",
    "Reason": "toolmesh.common.v1.error_table",
    "Result": "toolmesh_sdk.result",
    "RecordFilters": "toolmesh_sdk.client",
    "RetryPolicy": "toolmesh_sdk.client",
    "Tls": "toolmesh_sdk.client",
    "UsageReader": "toolmesh_sdk.usage",
    "canonical_json": "toolmesh_sdk.keys",
    "derive_idempotency_key": "toolmesh_sdk.keys",
    "new_traceparent": "toolmesh_sdk._wire.trace",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"toolmesh_sdk has no {name}")
    return getattr(importlib.import_module(_MODULES[name]), name)
