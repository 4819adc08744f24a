"""Policy answered by Cedar. Cedar knows two answers and the mesh three, so every call is put to it as two questions:
may it run, and may it run without a person? Both are evaluated in one pass over the same entities."""

from __future__ import annotations

from typing import Any

import cedarpy
import orjson

from libs.common.auth.identity import Identity
from libs.common.errors import Reason
from libs.common.telemetry.log import Log
from services.authz.adapters.cedar_policies import DEFAULT_APPROVERS, INVOKE, WITHOUT_APPROVAL, PolicyNotes, PolicySet
from services.authz.domain.errors import no_decision
from services.authz.domain.model import USER_TIER, Allow, CallFacts, Deny, NeedsApproval, Question, Verdict


class CedarEngine:
    """A PolicyEngine over a loaded policy set, which it never reads again."""

    def __init__(self, policy_set: PolicySet, log: Log) -> None:
        self._set = policy_set
        self._log = log
        self._repeatable = not policy_set.reads_arguments_or_session

    @property
    def version(self) -> str:
        return self._set.version

    def judge(self, question: Question) -> Verdict:
        """Return allow only if both questions are answered with Allow and no policy failed."""
        may_run, unattended = self._ask(question)
        errors = [*may_run.diagnostics.errors, *unattended.diagnostics.errors]
        if cedarpy.Decision.NoDecision in (may_run.decision, unattended.decision):
            self._log.error("policy gave no decision", errors=errors, tool=question.call.tool.qualified)
            raise no_decision()
        if errors:
            # Cedar skips a policy that fails, so that a failing forbid would forbid nothing.
            self._log.error("policy failed", errors=errors, tool=question.call.tool.qualified)
            reason = "A policy could not be evaluated, so the call is denied."
            return Verdict(Deny(Reason.POLICY_ENGINE_ERROR), (reason,), holds_for_any_arguments=False)
        if not may_run.allowed:
            return self._denied(self._determining(may_run))
        if not unattended.allowed:
            return self._needs_approval(self._determining(unattended))
        return self._verdict(Allow(), [*self._determining(may_run), *self._determining(unattended)])

    def _ask(self, question: Question) -> list[cedarpy.AuthzResult]:
        principal, resource = _principal(question.caller), _resource(question.call)
        uids = {"principal": principal["uid"], "resource": resource["uid"], "context": _context(question)}
        # Uids as objects: cheaper than Cedar's own notation, and no id can be mistaken for syntax.
        requests = [{**uids, "action": {"type": "Action", "id": action}} for action in (INVOKE, WITHOUT_APPROVAL)]
        entities = orjson.dumps([principal, resource]).decode()
        try:
            return cedarpy.is_authorized_batch(requests, self._set.policies, entities, self._set.schema)
        except Exception as error:
            # Whatever breaks inside the engine, the answer is the same: there is none, so the call is refused.
            self._log.error("policy engine broke", cause=error)
            raise no_decision() from error

    def _determining(self, result: cedarpy.AuthzResult) -> list[PolicyNotes]:
        found = set(result.diagnostics.reasons)
        return [notes for name, notes in self._set.notes.items() if name in found]

    def _denied(self, policies: list[PolicyNotes]) -> Verdict:
        return self._verdict(Deny(Reason.PERMISSION_DENIED), policies, "No policy permits this call.")

    def _needs_approval(self, policies: list[PolicyNotes]) -> Verdict:
        if policies:
            asking = policies[0]
            outcome = NeedsApproval(asking.approvers, asking.quorum, asking.id)
        else:
            outcome = NeedsApproval(DEFAULT_APPROVERS, 1, "")
        return self._verdict(outcome, policies, "No policy lets this call run without a person.")

    def _verdict(
        self, outcome: Allow | Deny | NeedsApproval, policies: list[PolicyNotes], otherwise: str = ""
    ) -> Verdict:
        return Verdict(
            outcome,
            reasons=tuple(policy.reason for policy in policies) or (otherwise,),
            policies=tuple(policy.id for policy in policies),
            holds_for_any_arguments=self._repeatable,
        )


def _principal(caller: Identity) -> dict[str, Any]:
    is_user = caller.tier == USER_TIER
    return {
        "uid": {"type": "User", "id": caller.subject} if is_user else _agent(caller),
        "attrs": {
            "tenant": caller.tenant,
            "trust_level": caller.trust_level,
            "groups": list(caller.groups),
            "scopes": list(caller.scopes),
        },
        "parents": [],
    }


def _agent(caller: Identity) -> dict[str, str]:
    return {"type": "Agent", "id": caller.agent or caller.subject}


def _resource(call: CallFacts) -> dict[str, Any]:
    version = str(call.version)
    return {
        "uid": {"type": "Tool", "id": call.tool.version(version)},
        "attrs": {
            "namespace": call.tool.namespace,
            "tool_id": call.tool.tool_id,
            "version": version,
            "mutation_class": call.mutation_class,
            "required_permissions": list(call.required_permissions),
            "tags": list(call.tags),
            "impact_scope": call.impact_scope,
            "approval_always": call.approval_always,
        },
        "parents": [],
    }


def _context(question: Question) -> str:
    return orjson.dumps(
        {
            "environment": question.environment,
            "session_id": question.call.session_id,
            "arguments_digest": question.call.arguments_digest,
        }
    ).decode()
