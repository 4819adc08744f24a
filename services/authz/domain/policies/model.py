"""The model of policy sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from services.authz.domain.model import CallFacts, ContextField, Decision, DecisionRequest, LabelSource, SubjectFacts

Documents = Mapping[str, str]
"""Texts by name: `*.cedar`, and at most one `limits.json`."""


@dataclass(frozen=True, slots=True)
class PolicyProblem:
    """One problem of policy documents. Lines and columns count from 1; 0 means the whole document or set."""

    document: str
    line: int
    column: int
    policy: str
    """The @id of the policy, if it has one."""
    rule: str
    """The broken rule: `syntax`, `type`, `annotation`, `size` and others."""
    message: str


@dataclass(frozen=True, slots=True)
class StoredPolicySet:
    """A stored policy set. Its content is immutable; only its activation changes."""

    number: int
    version: str
    """The digest of its content."""
    documents: Documents
    """Empty in lists."""
    policy_count: int
    comment: str
    put_by: str
    put_time: datetime
    active: bool = False
    activate_time: datetime | None = None
    """When it was last activated."""

    @property
    def name(self) -> str:
        return f"policySets/{self.number}"


@dataclass(frozen=True, slots=True)
class PolicySetChange:
    """A change of a policy set: added or replaced documents, and the names of removed ones."""

    documents: Documents
    removed: tuple[str, ...]
    base: int | None
    """The set to change; None means the active one."""


@dataclass(frozen=True, slots=True)
class PolicyQuestion:
    """A question about a call that is made up."""

    subject: SubjectFacts
    call: CallFacts
    labels: frozenset[str] = frozenset()
    """Labels of the session."""
    environment: str = ""
    """Empty means that of the mesh."""
    time: datetime | None = None
    """None means now."""
    granted_by_wildcard: bool = False
    """Whether the token covers the tool only by `*`."""
    token_labels: frozenset[str] = frozenset()
    """Labels that other sessions of the token carry."""
    session_bound: bool = False
    """Whether the token is bound to the session."""


@dataclass(frozen=True, slots=True)
class PolicyFinding:
    """The evaluation of one policy for a request."""

    policy: str
    effect: str
    matched: bool
    failed: bool
    reason: str
    document: str
    line: int


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A decision of the journal, with its request."""

    decision: Decision
    request: DecisionRequest
    """Without arguments if they were not stored."""
    context_fields: frozenset[ContextField] | None
    """The context fields that it may depend on; None when policy was not evaluated."""
    label_scopes: tuple[str, ...] = ()
    """The keys under which the labels of its session were stored."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with the evaluation of each policy."""

    recorded: RecordedDecision
    findings: tuple[PolicyFinding, ...]
    summary: str
    label_sources: tuple[LabelSource, ...] = ()
    """What brought the labels that the call met, as far as policy read them."""


@dataclass(frozen=True, slots=True)
class DecisionFlip:
    """A decision that another policy set would make differently."""

    decision: str
    subject: str
    tool_version: str
    before: str
    after: str
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """The progress of a replay, with the flips since the last message."""

    replayed: int
    total: int
    undecidable: int
    flips: tuple[DecisionFlip, ...] = ()


@dataclass(frozen=True, slots=True)
class NewPolicySet:
    """A policy set to store."""

    version: str
    documents: Documents
    policy_count: int
    comment: str
    put_by: str
    put_time: datetime


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """The result of a validation: the problems, or the number of policies."""

    version: str
    problems: tuple[PolicyProblem, ...]
    policy_count: int
