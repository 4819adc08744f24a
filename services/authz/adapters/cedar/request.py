"""Evaluates one decision request with Cedar and collects the policies that matched or failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import cedarpy
import orjson

from services.authz.adapters.cedar.annotations import INVOKE, WITHOUT_APPROVAL
from services.authz.adapters.cedar.compiler import PolicySet
from services.authz.adapters.cedar.entities import (
    action_uid,
    full_context,
    principal_entity,
    principal_uid,
    resource_entity,
    resource_uid,
)
from services.authz.adapters.cedar.slicing import PolicySlice
from services.authz.domain.model import ContextField, DecisionRequest


@dataclass(slots=True)
class CedarResponse:
    """The matching and failing policies of one action, merged from the slices of a set."""

    forbids: set[str] = field(default_factory=set)
    permits: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    @property
    def allowed(self) -> bool:
        return bool(self.permits) and not self.forbids

    def copy(self) -> CedarResponse:
        """Return a copy that can be extended."""
        return CedarResponse(set(self.forbids), set(self.permits), list(self.errors))

    def merge(self, other: CedarResponse) -> None:
        """Add the response of another slice."""
        self.forbids |= other.forbids
        self.permits |= other.permits
        self.errors += other.errors

    def add(self, result: cedarpy.AuthzResult, names: Mapping[str, str]) -> None:
        """Add Cedar's result; `names` maps Cedar's policy names to the names in the set."""
        decision, diagnostics = result.decision, result.diagnostics
        if decision is cedarpy.Decision.NoDecision:
            raise NoDecisionError(diagnostics.errors)
        if reasons := diagnostics.reasons:
            matched = self.permits if decision is cedarpy.Decision.Allow else self.forbids
            matched.update([names[reason] for reason in reasons])
        self.errors += diagnostics.errors


CedarResponses = Mapping[str, CedarResponse]
"""Responses by action."""


class NoDecisionError(Exception):
    """Cedar returned no decision."""


class CedarRequest:
    """A decision request in Cedar's format."""

    def __init__(self, policies: PolicySet, request: DecisionRequest) -> None:
        self._set, self._request = policies, request

    def evaluate(self, policy_slice: PolicySlice) -> CedarResponses:
        """Evaluate both actions for policies that read no per-call context."""
        request, responses = self._request, empty_responses()
        # Without the schema: it would require attributes that these policies do not read and that are not sent.
        results = cedarpy.is_authorized_batch(
            policy_slice.build_requests(request), policy_slice.policies, policy_slice.build_entities(request)
        )
        self._collect(policy_slice, results, responses)
        return responses

    def evaluate_with_context(
        self, slices: Iterable[PolicySlice], context_fields: frozenset[ContextField], into: CedarResponses
    ) -> None:
        """Evaluate both actions for policies that may read the whole context."""
        request = self._request
        context, tagged = full_context(request, context_fields, self._set.zones)
        entities = orjson.dumps([principal_entity(request.caller), resource_entity(request.call), *tagged]).decode()
        handle = cedarpy.Entities.from_json_str(entities, self._set.schema)
        # UIDs as objects: cheaper than Cedar's own notation, and an id cannot be mistaken for syntax.
        common = {
            "principal": principal_uid(request.caller),
            "resource": resource_uid(request.call),
            "context": context,
        }
        for policy_slice in slices:
            requests: list[dict[str, Any]] = [
                {**common, "action": action_uid(action)} for action in policy_slice.actions
            ]
            results = cedarpy.is_authorized_batch(requests, policy_slice.policies, handle, self._set.schema)
            self._collect(policy_slice, results, into)

    @staticmethod
    def _collect(policy_slice: PolicySlice, results: list[cedarpy.AuthzResult], into: CedarResponses) -> None:
        for action, result in zip(policy_slice.actions, results, strict=True):
            into[action].add(result, policy_slice.names)


def empty_responses() -> CedarResponses:
    """Return a response without matches for each action."""
    return {INVOKE: CedarResponse(), WITHOUT_APPROVAL: CedarResponse()}
