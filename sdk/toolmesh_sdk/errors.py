"""Exceptions of the client: one class per category of the mesh's error table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from toolmesh.common.v1.error_table import ROWS, Reason


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated rule: its path, its id and a message."""

    path: str
    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The fields of the mesh's error envelope."""

    reason: Reason
    code: str
    category: str
    error_class: str
    retryable: bool
    message: str
    resolution: str
    retry_after: float | None = None
    trace_id: str = ""
    invocation_id: str = ""
    violations: tuple[Violation, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    answered: bool = True


class ToolmeshError(Exception):
    """A call failed. Catch this for every failure, or the subclass of a category for one kind.

    `retryable` is set by the mesh if the same call may succeed later. `answered` is False if the call was lost before
    the mesh responded, before or behind its edge: the tool may have run. `attempts` is the number of attempts.
    """

    category_name: ClassVar[str] = ""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure
        self.reason = failure.reason
        self.code = failure.code
        self.category = failure.category
        self.error_class = failure.error_class
        self.retryable = failure.retryable
        self.retry_after = failure.retry_after
        self.message = failure.message
        self.resolution = failure.resolution
        self.trace_id = failure.trace_id
        self.invocation_id = failure.invocation_id
        self.violations = failure.violations
        self.metadata = failure.metadata
        self.answered = failure.answered
        self.attempts = 1

    def __str__(self) -> str:
        return f"{self.code} {self.reason.name}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        """Return the envelope as a JSON object, with the names of the mesh's JSON-RPC edge."""
        return {
            **asdict(self.failure),
            "reason": self.reason.name,
            "violations": [asdict(violation) for violation in self.violations],
            "attempts": self.attempts,
        }


class InvalidInputError(ToolmeshError):
    """The input is invalid. Fix the call; a retry does not help."""

    category_name = "INVALID_INPUT"


class AuthorizationDeniedError(ToolmeshError):
    """The caller lacks authority, or the token is not accepted."""

    category_name = "AUTHORIZATION_DENIED"


class ToolNotFoundError(ToolmeshError):
    """The tool, or a version that satisfies the request, does not exist."""

    category_name = "TOOL_NOT_FOUND"


class DeadlineExceededError(ToolmeshError):
    """The deadline passed."""

    category_name = "DEADLINE_EXCEEDED"


class RateLimitedError(ToolmeshError):
    """Too many calls; `retry_after` is the time to wait, if it is known."""

    category_name = "RATE_LIMITED"


class UpstreamFailureError(ToolmeshError):
    """A dependency of the call failed or was unreachable."""

    category_name = "UPSTREAM_FAILURE"


class InternalToolError(ToolmeshError):
    """The tool or the mesh failed unexpectedly."""

    category_name = "INTERNAL_TOOL_ERROR"


class ResourceExhaustedError(ToolmeshError):
    """A limit of memory, size, queue or budget was reached."""

    category_name = "RESOURCE_EXHAUSTED"


class PreconditionFailedError(ToolmeshError):
    """A required state does not hold."""

    category_name = "PRECONDITION_FAILED"


class ConflictError(ToolmeshError):
    """An earlier or concurrent request conflicts, such as another call with the same idempotency key."""

    category_name = "CONFLICT"


class ApprovalRequiredError(ToolmeshError):
    """A person must approve the call; the metadata names the ticket, if there is one."""

    category_name = "APPROVAL_REQUIRED"


CATEGORIES: dict[str, type[ToolmeshError]] = {kind.category_name: kind for kind in ToolmeshError.__subclasses__()}


def error_from_failure(failure: Failure) -> ToolmeshError:
    """Return the exception of the failure's category; ToolmeshError for an unknown category."""
    return CATEGORIES.get(failure.category, ToolmeshError)(failure)


def error_for_reason(
    reason: Reason,
    *,
    message: str = "",
    metadata: Mapping[str, str] | None = None,
    violations: Iterable[Violation] = (),
    trace_id: str = "",
    answered: bool = True,
) -> ToolmeshError:
    """Return the exception of a reason that the client detects, filled from its row of the error table."""
    row = ROWS[reason]
    return error_from_failure(
        Failure(
            reason=reason,
            code=row.code,
            category=row.category,
            error_class=row.error_class,
            retryable=row.retryable,
            message=message or row.title,
            resolution=row.resolution,
            trace_id=trace_id,
            metadata=dict(metadata or {}),
            violations=tuple(violations),
            answered=answered,
        )
    )
