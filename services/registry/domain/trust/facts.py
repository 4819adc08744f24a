"""The recorded facts about a tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from libs.common.tool_names import ToolName
from services.registry.domain.trust.usage import Usage


class AuditLevel(StrEnum):
    """Who performed an audit."""

    SELF_ASSESSED = "self_assessed"
    THIRD_PARTY = "third_party"


class VerificationKind(StrEnum):
    """What was verified."""

    SANDBOX_DEPLOYMENT = "sandbox_deployment"
    INTEGRATION_TESTS = "integration_tests"
    REGRESSION = "regression"
    SLA_COMMITMENT = "sla_commitment"
    PROVIDER_IDENTITY = "provider_identity"


@dataclass(frozen=True, slots=True)
class Rating:
    """One subject's rating of one version."""

    tool: ToolName
    version: str
    subject: str
    stars: int
    comment: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Ratings:
    """The ratings of a tool; the newest rating of each subject counts."""

    count: int = 0
    average: float = 0.0


@dataclass(frozen=True, slots=True)
class Audit:
    """A security audit of one version."""

    tool: ToolName
    version: str
    level: AuditLevel
    passed: bool
    auditor: str
    time: datetime
    report_url: str = ""
    summary: str = ""
    actor: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of one verification of one version."""

    tool: ToolName
    version: str
    kind: VerificationKind
    passed: bool
    time: datetime
    evidence_url: str = ""
    summary: str = ""
    actor: str = ""
    request_id: str = ""


Fact = Audit | Verification


@dataclass(frozen=True, slots=True)
class OtherTools:
    """The number and mean own score of a provider's other tools."""

    count: int = 0
    mean: float = 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """All inputs of a score at one time."""

    admitted: datetime
    """When the version was admitted, which verified its schemas and examples."""
    usage: Usage | None = None
    """None when it could not be read."""
    ratings: Ratings = Ratings()
    audits: Mapping[AuditLevel, Audit] = field(default_factory=dict)
    """The newest of each level."""
    verifications: Mapping[VerificationKind, Verification] = field(default_factory=dict)
    """The newest of each kind."""
    others: OtherTools = OtherTools()
    """The provider's other tools."""

    @property
    def last_verified(self) -> datetime | None:
        """The time of the last verification that passed."""
        return max(
            (verification.time for verification in self.verifications.values() if verification.passed), default=None
        )
