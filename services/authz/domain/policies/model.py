"""The nouns of policy sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from services.authz.domain.model import Decision, Fact, Question

Documents = Mapping[str, str]
"""Texts by name: `*.cedar`, and at most one `limits.json`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with documents. Lines and columns count from 1; 0 is about the whole."""

    document: str
    line: int
    column: int
    policy: str
    """Its @id, where it has one."""
    rule: str
    """What it breaks: `syntax`, `type`, `annotation`, `size` and others."""
    message: str


@dataclass(frozen=True, slots=True)
class StoredSet:
    """A set of policies. It never changes; only whether it is the active one does."""

    number: int
    version: str
    """The digest of its content."""
    documents: Documents
    """Empty where sets are only listed."""
    policy_count: int
    comment: str
    put_by: str
    put_time: datetime
    active: bool = False
    activate_time: datetime | None = None
    """When it was last made active."""

    @property
    def name(self) -> str:
        return f"policySets/{self.number}"


@dataclass(frozen=True, slots=True)
class Change:
    """What to make of a set: documents that are new or other, and names of those that are left out."""

    documents: Documents
    removed: tuple[str, ...]
    base: int | None
    """The set to begin with; None means the active one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one policy made of a question."""

    policy: str
    effect: str
    matched: bool
    failed: bool
    reason: str
    document: str
    line: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """A decision as it was kept, with the question that it answers."""

    decision: Decision
    question: Question
    """Without arguments, where they were not kept."""
    reads: frozenset[Fact] | None
    """The facts of the one call that it may rest on; None when policy was not asked."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision, and what each policy that could apply made of its question."""

    recorded: Recorded
    findings: tuple[Finding, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class Flip:
    """A decision that another set would make otherwise."""

    decision: str
    subject: str
    tool_version: str
    before: str
    after: str
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay has come, and what it found since the last message."""

    replayed: int
    total: int
    undecidable: int
    flips: tuple[Flip, ...] = ()


@dataclass(frozen=True, slots=True)
class NewSet:
    """A set that is about to be kept."""

    version: str
    documents: Documents
    policy_count: int
    comment: str
    put_by: str
    put_time: datetime


@dataclass(frozen=True, slots=True)
class Examination:
    """What became of documents: what is wrong, or how many policies there are."""

    version: str
    problems: tuple[Problem, ...]
    policy_count: int
