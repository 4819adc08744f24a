"""The error of a process that cannot start for a reason outside its code."""

from __future__ import annotations


class StartError(Exception):
    """The process cannot start, and its operator can remove the cause. The message says how, and holds no secret."""
