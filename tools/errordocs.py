"""Render the error table of the contract as docs/errors.md."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RANGES = [
    (3000, "General"),
    (3100, "Registry"),
    (3200, "Permission"),
    (3300, "Validation"),
    (3400, "Execution"),
    (3500, "Circuit breaker"),
    (3600, "Secrets"),
    (3700, "Asynchronous work"),
    (3800, "Audit"),
    (3850, "Document bridge"),
    (3900, "State bridge"),
]
HEAD = """# Errors

Written by `make proto` from `proto/toolmesh/common/v1/error_reason.proto`; edit the table there.

Every failure of the mesh is one of these reasons. Over gRPC the status carries an `ErrorEnvelope` detail, over JSON-RPC
the error's `data` is the same envelope as JSON. `retryable` is authoritative: a client must not retry without it. Where
`metadata` has `outcome: unknown`, the call was lost after it had been sent and may have run: repeat it only if it reads
or carries an idempotency key. Codes marked * are Toolmesh's own, in free numbers of the specification's ranges.
"""
COLUMNS = "| code | reason | category | class | gRPC | HTTP | JSON-RPC | MCP | retry | what happened | what to do |"


def render() -> str:
    """Render the whole page; the descriptors are read from gen/, so generate the stubs first."""
    sys.path.insert(0, str(ROOT / "gen"))
    import grpc
    from toolmesh.common.v1 import error_reason_pb2 as pb

    grpc_names = {code.value[0]: code.name for code in grpc.StatusCode}
    parts = [HEAD]
    values = [v for v in pb.ErrorReason.DESCRIPTOR.values if v.number]
    for index, (start, title) in enumerate(RANGES):
        end = RANGES[index + 1][0] if index + 1 < len(RANGES) else 4000
        rows = [_row(v, pb, grpc_names) for v in values if start <= v.number < end]
        parts.append("\n".join([f"## {title}", "", COLUMNS, "|" + "---|" * 11, *rows, ""]))
    return "\n".join(parts)


def _row(value, pb, grpc_names) -> str:  # type: ignore[no-untyped-def]
    row = value.GetOptions().Extensions[pb.row]
    mark = "*" if row.origin == pb.ERROR_ORIGIN_TOOLMESH else ""
    mcp = "result" if row.mcp_shape == pb.MCP_SHAPE_TOOL_RESULT else "error"
    cells = [
        row.code + mark,
        value.name.removeprefix("ERROR_REASON_"),
        pb.ErrorCategory.Name(row.category).removeprefix("ERROR_CATEGORY_"),
        pb.ErrorClass.Name(row.error_class).removeprefix("ERROR_CLASS_").lower(),
        grpc_names[row.grpc_status],
        str(row.http_status),
        str(row.jsonrpc_code or "none"),
        mcp,
        "yes" if row.retryable else "no",
        row.title,
        row.resolution,
    ]
    return "| " + " | ".join(cells) + " |"
