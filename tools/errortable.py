"""Render the error table of the contract as plain Python, so that a domain can name a reason without any stub."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAD = '''"""The error table as plain Python. Generated from error_reason.proto by `make proto`. DO NOT EDIT."""

from enum import IntEnum
from typing import NamedTuple


class Row(NamedTuple):
    """What each protocol and vocabulary calls one reason; the columns are those of ErrorRow in the contract."""

    code: str
    category: str
    error_class: str
    grpc_status: int
    http_status: int
    jsonrpc_code: int
    mcp_tool_result: bool
    retryable: bool
    title: str
    resolution: str


class Reason(IntEnum):
    """What went wrong; the number is the number in the code."""

'''


def render(gen: Path) -> str:
    """Render the module from the stubs below `gen`. Runs in a fresh interpreter, which has no older stubs loaded."""
    command = [sys.executable, str(Path(__file__)), str(gen)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _render() -> str:
    from toolmesh.common.v1 import error_reason_pb2 as pb

    values = [v for v in pb.ErrorReason.DESCRIPTOR.values if v.number]
    reasons = [f"    {v.name.removeprefix('ERROR_REASON_')} = {v.number}" for v in values]
    rows = []
    for value in values:
        row = value.GetOptions().Extensions[pb.row]
        columns = (
            row.code,
            pb.ErrorCategory.Name(row.category).removeprefix("ERROR_CATEGORY_"),
            pb.ErrorClass.Name(row.error_class).removeprefix("ERROR_CLASS_").lower(),
            row.grpc_status,
            row.http_status,
            row.jsonrpc_code,
            row.mcp_shape == pb.MCP_SHAPE_TOOL_RESULT,
            row.retryable,
            row.title,
            row.resolution,
        )
        rows.append(f"    Reason.{value.name.removeprefix('ERROR_REASON_')}: Row{columns!r},")
    return HEAD + "\n".join([*reasons, "", "", "ROWS: dict[Reason, Row] = {", *rows, "}", ""])


if __name__ == "__main__":
    sys.path[:0] = [sys.argv[1]]
    sys.stdout.write(_render())
