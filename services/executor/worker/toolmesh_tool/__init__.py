"""The API of Python tools.

This package is the only part of the mesh that a tool can see. It runs inside the sandbox on the standard library and
enforces nothing: the sandbox does.
"""

from __future__ import annotations

from .call import Call, ToolFailure, previewed_by
from .egress import UnreachableError, connect

__all__ = ["Call", "ToolFailure", "UnreachableError", "connect", "previewed_by"]
