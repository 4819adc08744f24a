"""AuthZEN 1.0 evaluations: parses requests and builds answers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from libs.common.errors import MeshError, Reason, Violation
from libs.common.json.jsonio import parse_object
from services.gateway.domain.response import envelope

MAX_BYTES = 2 * 1024 * 1024
MAX_EVALUATIONS = 50
EXECUTE_ALL, DENY_FIRST, PERMIT_FIRST = "execute_all", "deny_on_first_deny", "permit_on_first_permit"

_PARTS = ("subject", "action", "resource", "context")
_SUBJECT_PROPERTIES: Mapping[str, type] = {
    "on_behalf_of": str,
    "tenant": str,
    "trust_level": int,
    "groups": list,
    "scopes": list,
}
_CONTEXT: Mapping[str, type] = {"arguments": dict, "session_id": str, "risk": dict}
_LEAST_RISK, _MOST_RISK = -(2**63), 2**63 - 1


class Evaluation(NamedTuple):
    """One evaluation: may this subject take this action on this resource?"""

    subject: Mapping[str, Any]
    action: Mapping[str, Any]
    resource: Mapping[str, Any]
    context: Mapping[str, Any]


class InvalidEvaluation(NamedTuple):
    """A malformed entry of a list."""

    error: MeshError


class Evaluations(NamedTuple):
    """A list of evaluations, and when to stop."""

    entries: tuple[Evaluation | InvalidEvaluation, ...]
    semantic: str

    def ends_with(self, decision: bool) -> bool:
        """Return whether no further entry is evaluated after this decision."""
        return self.semantic == (PERMIT_FIRST if decision else DENY_FIRST)


def read_evaluation(payload: bytes) -> Evaluation:
    """Parse the body of one evaluation. Raises INVALID_REQUEST with every violation, or the errors of strict JSON."""
    return _evaluation(parse_object(payload, max_bytes=MAX_BYTES))


def read_evaluations(payload: bytes) -> Evaluations | Evaluation:
    """Parse the body of many. Without `evaluations` it is the body of one."""
    body = parse_object(payload, max_bytes=MAX_BYTES)
    entries, options = body.get("evaluations", []), body.get("options", {})
    if not isinstance(entries, list) or len(entries) > MAX_EVALUATIONS:
        raise _refused([Violation("/evaluations", "items", f"must be a list of at most {MAX_EVALUATIONS}")])
    semantic = options.get("evaluations_semantic", EXECUTE_ALL) if isinstance(options, dict) else None
    if semantic not in (EXECUTE_ALL, DENY_FIRST, PERMIT_FIRST):
        raise _refused([Violation("/options/evaluations_semantic", "enum", "is not a known semantic")])
    if not entries:
        return _evaluation(body)
    defaults = {part: body[part] for part in _PARTS if part in body}
    return Evaluations(tuple(_entry(defaults, entry) for entry in entries), semantic)


def _entry(defaults: Mapping[str, Any], entry: Any) -> Evaluation | InvalidEvaluation:
    if not isinstance(entry, dict):
        return InvalidEvaluation(_refused([Violation("", "type", "must be an object")]))
    try:
        return _evaluation({**defaults, **entry})
    except MeshError as error:
        return InvalidEvaluation(error)


def _evaluation(body: Mapping[str, Any]) -> Evaluation:
    violations = [*_violations(body)]
    if violations:
        raise _refused(violations)
    return Evaluation(body["subject"], body["action"], body["resource"], body.get("context", {}))


def _violations(body: Mapping[str, Any]) -> Iterator[Violation]:
    for part, names in (("subject", ("type", "id")), ("action", ("name",)), ("resource", ("type", "id"))):
        value = body.get(part)
        if not isinstance(value, dict):
            yield Violation(f"/{part}", "required", "must be an object")
            continue
        for name in names:
            if not isinstance(value.get(name), str) or not 1 <= len(value[name]) <= 512:
                yield Violation(f"/{part}/{name}", "type", "must be a string of 1 to 512 characters")
        if not isinstance(value.get("properties", {}), dict):
            yield Violation(f"/{part}/properties", "type", "must be an object")
    yield from _typed("/context", body.get("context", {}), _CONTEXT)
    yield from _risk(body.get("context"))
    subject = body.get("subject")
    if isinstance(subject, dict) and isinstance(subject.get("properties", {}), dict):
        yield from _typed("/subject/properties", subject.get("properties", {}), _SUBJECT_PROPERTIES)


def _risk(context: Any) -> Iterator[Violation]:
    facts = context.get("risk") if isinstance(context, dict) else None
    if isinstance(facts, dict) and not all(
        type(value) is int and _LEAST_RISK <= value <= _MOST_RISK for value in facts.values()
    ):
        yield Violation("/context/risk", "type", "must be whole numbers of 64 bits by name")


def _typed(path: str, found: Any, types: Mapping[str, type]) -> Iterator[Violation]:
    """Check the types of the properties that the mesh reads; others are ignored."""
    if not isinstance(found, dict):
        yield Violation(path, "type", "must be an object")
        return
    for name, expected in types.items():
        value = found.get(name)
        # A bool is an int to Python and not to JSON.
        fits = isinstance(value, expected) and not isinstance(value, bool)
        if expected is list:
            fits = fits and all(isinstance(text, str) for text in found[name])
        if name in found and not fits:
            yield Violation(f"{path}/{name}", "type", f"must be of type {expected.__name__}")


def decision_answer(decision: bool, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of one evaluation."""
    return {"decision": decision, "context": context}


def error_answer(error: MeshError, trace_id: str) -> dict[str, Any]:
    """Return the answer to an entry that failed: false, with the error."""
    details = {"status": error.row.http_status, "message": error.message, "details": envelope(error, trace_id)}
    return decision_answer(False, {"error": details})


def _refused(violations: list[Violation]) -> MeshError:
    return MeshError(Reason.INVALID_REQUEST, message="not an AuthZEN evaluation", violations=violations)
