"""One question in Cedar's terms, and what Cedar says to it."""

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
    principal_of,
    principal_uid,
    resource_of,
    resource_uid,
    whole_context,
)
from services.authz.adapters.cedar.slicing import Part
from services.authz.domain.model import Fact, Question


@dataclass(slots=True)
class Answer:
    """What Cedar says to one of the two questions, gathered from the parts of a set."""

    forbids: set[str] = field(default_factory=set)
    permits: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    @property
    def allowed(self) -> bool:
        return bool(self.permits) and not self.forbids

    def copy(self) -> Answer:
        """Return the same, for more to be added to it."""
        return Answer(set(self.forbids), set(self.permits), list(self.errors))

    def merge(self, other: Answer) -> None:
        """Add what Cedar says about another part."""
        self.forbids |= other.forbids
        self.permits |= other.permits
        self.errors += other.errors

    def add(self, result: cedarpy.AuthzResult, names: Mapping[str, str]) -> None:
        decision, diagnostics = result.decision, result.diagnostics
        if decision is cedarpy.Decision.NoDecision:
            raise UnansweredError(diagnostics.errors)
        if reasons := diagnostics.reasons:
            found = self.permits if decision is cedarpy.Decision.Allow else self.forbids
            found.update([names[reason] for reason in reasons])
        self.errors += diagnostics.errors


Answers = Mapping[str, Answer]
"""By the two actions."""


class UnansweredError(Exception):
    """Cedar gave no decision."""


class Case:
    """One question in Cedar's terms."""

    def __init__(self, policies: PolicySet, question: Question) -> None:
        self._set, self._question = policies, question

    def ask(self, part: Part) -> Answers:
        """Put both questions to policies that read nothing of the call itself."""
        question, answers = self._question, no_answers()
        # Without the schema, which would ask for facts that these policies do not read, and so are not told.
        results = cedarpy.is_authorized_batch(part.asking(question), part.policies, part.telling(question))
        self._take(part, results, answers)
        return answers

    def ask_about_the_call(self, parts: Iterable[Part], reads: frozenset[Fact], into: Answers) -> None:
        """Put both questions to policies that may read everything."""
        question = self._question
        context, facts = whole_context(question, reads)
        entities = orjson.dumps([principal_of(question.caller), resource_of(question.call), *facts]).decode()
        handle = cedarpy.Entities.from_json_str(entities, self._set.schema)
        # Uids as objects: cheaper than Cedar's own notation, and no id can be mistaken for syntax.
        common = {
            "principal": principal_uid(question.caller),
            "resource": resource_uid(question.call),
            "context": context,
        }
        for part in parts:
            requests: list[dict[str, Any]] = [{**common, "action": action_uid(action)} for action in part.actions]
            self._take(part, cedarpy.is_authorized_batch(requests, part.policies, handle, self._set.schema), into)

    @staticmethod
    def _take(part: Part, results: list[cedarpy.AuthzResult], into: Answers) -> None:
        for action, result in zip(part.actions, results, strict=True):
            into[action].add(result, part.names)


def no_answers() -> Answers:
    """What is known before anything was asked."""
    return {INVOKE: Answer(), WITHOUT_APPROVAL: Answer()}
