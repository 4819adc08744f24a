"""What a failed call raises: the row of the mesh's error table, rebuilt as an exception of the row's category."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from toolmesh.common.v1.error_table import ROWS, Reason


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: where, which, and a sentence."""

    path: str
    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Everything that is known about a failure; the fields of the mesh's error envelope."""

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

    `retryable` is the mesh's own word on whether the same call may succeed later. `answered` is False when the call was lost before
    the mesh answered, on the way to it or behind its edge: then nobody knows whether the tool ran. `attempts` counts the calls that
    were made.
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
        """Return the envelope as JSON values, in the words that the mesh's JSON-RPC edge uses."""
        return {
            **asdict(self.failure),
            "reason": self.reason.name,
            "violations": [asdict(violation) for violation in self.violations],
            "attempts": self.attempts,
        }


class InvalidInputError(ToolmeshError):
    """The input breaks its contract. Mend the call; repeating it changes nothing."""

    category_name = "INVALID_INPUT"


class AuthorizationDeniedError(ToolmeshError):
    """The caller lacks the authority, or the token is not accepted."""

    category_name = "AUTHORIZATION_DENIED"


class ToolNotFoundError(ToolmeshError):
    """No such tool, or no version of it that satisfies the request."""

    category_name = "TOOL_NOT_FOUND"


class DeadlineExceededError(ToolmeshError):
    """Time ran out."""

    category_name = "DEADLINE_EXCEEDED"


class RateLimitedError(ToolmeshError):
    """Too many calls; `retry_after` says how long to wait where that is known."""

    category_name = "RATE_LIMITED"


class UpstreamFailureError(ToolmeshError):
    """Something the call depends on failed or could not be reached."""

    category_name = "UPSTREAM_FAILURE"


class InternalToolError(ToolmeshError):
    """The tool or the mesh failed in a way its contract does not name."""

    category_name = "INTERNAL_TOOL_ERROR"


class ResourceExhaustedError(ToolmeshError):
    """Memory, size, queue or budget ran out."""

    category_name = "RESOURCE_EXHAUSTED"


class PreconditionFailedError(ToolmeshError):
    """A state that the call needs does not hold."""

    category_name = "PRECONDITION_FAILED"


class ConflictError(ToolmeshError):
    """An earlier or concurrent act contradicts this one, such as another call under the same idempotency key."""

    category_name = "CONFLICT"


class ApprovalRequiredError(ToolmeshError):
    """A person must decide first; the metadata names the ticket where there is one."""

    category_name = "APPROVAL_REQUIRED"


CATEGORIES: dict[str, type[ToolmeshError]] = {kind.category_name: kind for kind in ToolmeshError.__subclasses__()}


def error_from(failure: Failure) -> ToolmeshError:
    """Return the exception of the failure's category; one that this build does not know is a plain ToolmeshError."""
    return CATEGORIES.get(failure.category, ToolmeshError)(failure)


def error_of(
    reason: Reason,
    *,
    message: str = "",
    metadata: Mapping[str, str] | None = None,
    violations: Iterable[Violation] = (),
    trace_id: str = "",
    answered: bool = True,
) -> ToolmeshError:
    """Return the exception of a reason that this side found, with the rest of its row."""
    row = ROWS[reason]
    return error_from(
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
