"""What a tool may use while it answers a call.

This package is all of the mesh that a tool can see. It runs inside the sandbox, on the standard library alone, and nothing in it
guards anything: the sandbox does.
"""

from __future__ import annotations

from .call import Call, ToolFailure, previewed_by
from .egress import UnreachableError, connect

__all__ = ["Call", "ToolFailure", "UnreachableError", "connect", "previewed_by"]
