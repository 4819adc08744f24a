"""The exception of the mesh. Its reason is a row of the error table; only the edges translate it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolmesh.common.v1.error_table import ROWS, Reason, Row

__all__ = ["MeshError", "Reason", "Row", "Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation: its path, its rule and a message. Never the offending value."""

    path: str
    rule: str
    message: str


class MeshError(Exception):
    """A failure with a reason. Callers see the message and the metadata: no paths, secrets or stack traces."""

    def __init__(
        self,
        reason: Reason,
        *,
        message: str = "",
        violations: Sequence[Violation] = (),
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        invocation_id: str = "",
        evidence: Sequence[str] = (),
        retryable: bool | None = None,
    ) -> None:
        self.reason = reason
        self.message = message or ROWS[reason].title
        self.violations = tuple(violations)
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after
        self.invocation_id = invocation_id
        self.evidence = tuple(evidence)
        self.retryable = ROWS[reason].retryable if retryable is None else retryable
        """Whether the same call may be sent again: by the error table, unless this failure is known to differ."""
        super().__init__(f"{self.row.code} {reason.name}: {self.message}")

    @property
    def row(self) -> Row:
        """The row of the error table."""
        return ROWS[self.reason]
