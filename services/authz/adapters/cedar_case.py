"""One question in Cedar's terms, and what Cedar says to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import cedarpy
import orjson

from services.authz.adapters.cedar_facts import principal_of, resource_of, steady_context, whole_context
from services.authz.adapters.cedar_index import Part
from services.authz.adapters.cedar_notes import INVOKE, WITHOUT_APPROVAL
from services.authz.adapters.cedar_policies import PolicySet
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

    def add(self, result: cedarpy.AuthzResult, names: Mapping[str, str]) -> None:
        decision, diagnostics = result.decision, result.diagnostics
        if decision is cedarpy.Decision.NoDecision:
            raise UnansweredError(diagnostics.errors)
        found = self.permits if decision is cedarpy.Decision.Allow else self.forbids
        found.update(names[reason] for reason in diagnostics.reasons)
        self.errors.extend(diagnostics.errors)


class UnansweredError(Exception):
    """Cedar gave no decision."""


class Case:
    """One question in Cedar's terms; each part of it is made when it is first needed."""

    def __init__(self, policies: PolicySet, question: Question) -> None:
        self._set = policies
        self._principal, self._resource = principal_of(question.caller), resource_of(question.call)
        self._context = steady_context(question)
        self._entities: cedarpy.Entities | None = None

    @property
    def entities(self) -> cedarpy.Entities:
        if self._entities is None:
            text = orjson.dumps([self._principal, self._resource]).decode()
            self._entities = cedarpy.Entities.from_json_str(text, self._set.schema)
        return self._entities

    def ask(self, part: Part, into: dict[str, Answer]) -> None:
        """Put both questions to policies that read nothing of the call itself."""
        # Without the schema: it would ask for facts that these policies do not read. The entities were held against it.
        results = cedarpy.is_authorized_batch(self._requests(part, self._context), part.policies, self.entities)
        self._take(part, results, into)

    def ask_about_the_call(
        self, question: Question, parts: Iterable[Part], reads: frozenset[Fact], into: dict[str, Answer]
    ) -> None:
        """Put both questions to policies that may read everything."""
        context, facts = whole_context(question, reads)
        entities = orjson.dumps([self._principal, self._resource, *facts]).decode()
        handle = cedarpy.Entities.from_json_str(entities, self._set.schema)
        for part in parts:
            requests = self._requests(part, context)
            results = cedarpy.is_authorized_batch(requests, part.policies, handle, self._set.schema)
            self._take(part, results, into)

    def _requests(self, part: Part, context: str) -> list[dict[str, Any]]:
        # Uids as objects: cheaper than Cedar's own notation, and no id can be mistaken for syntax.
        common = {"principal": self._principal["uid"], "resource": self._resource["uid"], "context": context}
        return [{**common, "action": {"type": "Action", "id": action}} for action in part.actions]

    @staticmethod
    def _take(part: Part, results: list[cedarpy.AuthzResult], into: dict[str, Answer]) -> None:
        for action, result in zip(part.actions, results, strict=True):
            into[action].add(result, part.names)


def no_answers() -> dict[str, Answer]:
    """What is known before anything was asked."""
    return {INVOKE: Answer(), WITHOUT_APPROVAL: Answer()}
