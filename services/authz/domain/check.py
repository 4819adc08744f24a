"""Check: decides about one call. First what the token covers, then what policy says about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from libs.common.auth.identity import Grant, Identity
from libs.common.clock import Clock
from libs.common.errors import Reason
from libs.common.ids import new_id
from libs.common.names import grant_covers
from libs.common.semver import Constraint
from services.authz.domain.model import (
    CallFacts,
    Decision,
    Deny,
    NeedsApproval,
    Question,
    SuggestedUpdate,
    Verdict,
)
from services.authz.domain.ports import PolicyEngine


@dataclass(frozen=True)
class Check:
    """Decides about calls in one environment. Reads nothing but its arguments and the loaded policies."""

    engine: PolicyEngine
    clock: Clock
    environment: str
    ttl: timedelta

    def __call__(self, caller: Identity, call: CallFacts) -> Decision:
        """Return the decision; policy is only asked about what the token covers, so it can never widen a token."""
        verdict = _refused_by_token(caller, call)
        if verdict is None:
            verdict = self.engine.judge(Question(caller, call, self.environment))
        return self._dated(verdict, caller)

    def _dated(self, verdict: Verdict, caller: Identity) -> Decision:
        now = self.clock.now()
        asks_a_person = isinstance(verdict.outcome, NeedsApproval)
        return Decision(
            name=f"decisions/{new_id()}",
            verdict=verdict,
            policy_set_version=self.engine.version,
            cacheable=verdict.holds_for_any_arguments and not asks_a_person,
            decide_time=now,
            expire_time=min(now + self.ttl, datetime.fromtimestamp(caller.expires_at, UTC)),
        )


def _refused_by_token(caller: Identity, call: CallFacts) -> Verdict | None:
    if not any(_covers(grant, call) for grant in caller.tools):
        name = call.tool.qualified
        return Verdict(
            Deny(Reason.TOOL_NOT_IN_TOKEN),
            reasons=(f"The token does not grant {name} at version {call.version}.",),
            suggested_updates=(SuggestedUpdate("tool", name),),
        )
    missing = sorted(call.required_scopes - caller.scopes)
    if missing:
        return Verdict(
            Deny(Reason.SCOPE_MISSING),
            reasons=(f"The tool requires scopes that the token does not hold: {', '.join(missing)}.",),
            suggested_updates=tuple(SuggestedUpdate("scope", scope) for scope in missing),
        )
    return None


def _covers(grant: Grant, call: CallFacts) -> bool:
    if not grant_covers(grant.tool, call.tool):
        return False
    # In a grant an empty constraint means any version, prereleases included; Constraint would read it as `latest`.
    return not grant.version_constraint or Constraint.parse(grant.version_constraint).accepts(call.version)
