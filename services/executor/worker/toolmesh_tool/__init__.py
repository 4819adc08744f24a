"""The API of Python tools.

This package is the only part of the mesh that a tool can see. It runs inside the sandbox on the standard library and
enforces nothing: the sandbox does.
"""

from __future__ import annotations

from .call import Call, InputUnavailableError, ToolFailure, previewed_by
from .channel import Canceled
from .decorator import tool
from .egress import UnreachableError, connect
from .limits import Limits

__all__ = [
    "Call",
    "Canceled",
    "InputUnavailableError",
    "Limits",
    "ToolFailure",
    "UnreachableError",
    "connect",
    "previewed_by",
    "tool",
]
