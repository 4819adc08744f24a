"""Reads answers of JSON-RPC in tests."""

from __future__ import annotations

from typing import Any

import httpx


def error_of(response: httpx.Response) -> Any:
    """Return the error of an answer that is one, and nothing else."""
    answer = response.json()
    assert answer.keys() == {"jsonrpc", "id", "error"}
    return answer["error"]
