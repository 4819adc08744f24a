"""Errors of usage queries."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason, Violation


def days_out_of_range(limit: int) -> MeshError:
    """The range is empty, too long or outside the calendar."""
    violation = Violation(path="filter.from_time", rule="days.range", message=f"must leave 1 to {limit} days")
    return MeshError(Reason.INVALID_REQUEST, violations=[violation])


def page_token_invalid() -> MeshError:
    """The page token does not belong to this ranking."""
    return MeshError(Reason.PAGE_TOKEN_INVALID)
