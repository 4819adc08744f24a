"""Checks one manifest offline: form, field rules, admission rules and the content scan, in one round.

The rules are the registry's own. It checks two things more: that the version fits its neighbours, and that an
executor can run the tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest
from toolmesh_sdk.errors import Violation
from toolmesh_sdk.manifests.parse import parse_manifest, translate_violations

from authoring.manifests.violation_advice import Advice, advise, merge_patch
from libs.common.errors import MeshError
from libs.common.rpc.validation.violations import violations_of
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.convert.manifest import manifest_of
from services.registry.domain.publishing.admission import AUTHOR_RULES, RULES, SCHEMA_RULES
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.remarks import remarks
from services.registry.domain.publishing.scan.policy import DEFAULT_POLICY
from services.registry.domain.publishing.scan.scan import scan_texts

_checker = JsonSchemaChecker()
# A rule cannot be evaluated while a field that it reads is missing or wrong; that field is reported itself.
_NOT_EVALUABLE = (KeyError, ValueError, TypeError, AttributeError, MeshError)
# Fields whose default comes from another field.
_DERIVED = {"/provider": "namespace", "/title": "tool_id"}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a manifest: its JSON Pointer, rule and message, and the advice that solves it."""

    path: str
    rule: str
    message: str
    advice: Advice
    blocks: bool = True
    """False for a remark with which the manifest is admitted all the same."""

    def to_dict(self) -> dict[str, Any]:
        """Return the problem as JSON."""
        shown = {"path": self.path, "rule": self.rule, "message": self.message, "advice": self.advice.text}
        return shown | ({"fix": self.advice.fix} if self.advice.fix else {}) | ({} if self.blocks else {"remark": True})


def check_manifest(document: Any) -> list[Problem]:
    """Return every problem of a manifest document."""
    _, form = parse_manifest(document)
    # A field that is under another name or in another form is checked as if its advice had been followed.
    followed = _follow(document, form)
    message, _ = parse_manifest(followed)
    fields = [_prefixed(violation) for violation in violations_of(message)]
    admission, warnings = _registry_findings(message)
    blocking = _distinct([*form, *translate_violations(fields), *translate_violations(admission)])
    blocking = [violation for violation in blocking if violation not in form and not _is_derived(followed, violation)]
    problems = [_problem(followed, violation, blocks=True) for violation in blocking]
    problems += [_problem(followed, violation, blocks=False) for violation in translate_violations(warnings)]
    return [*(_problem(document, violation, blocks=True) for violation in form), *problems]


def _is_derived(document: Any, violation: Violation) -> bool:
    """Return whether a field is wrong only because the field that it is derived from is missing."""
    source = _DERIVED.get(violation.path)
    return source is not None and isinstance(document, dict) and not {source, violation.path[1:]} & document.keys()


def _follow(document: Any, violations: list[Violation]) -> Any:
    for violation in violations:
        if fix := advise(document, violation.path, violation.rule).fix:
            document = merge_patch(document, fix)
    return document


def _registry_findings(message: ToolManifest) -> tuple[list[Violation], list[Violation]]:
    """Return the violations and the warnings of the registry."""
    try:
        manifest = manifest_of(message)
    except MeshError as error:
        return [Violation(each.path, each.rule, each.message) for each in error.violations], []
    rules: list[Callable[[], Iterator[Any]]] = [lambda rule=rule: rule(manifest) for rule in RULES]  # type: ignore[misc]
    rules += [lambda rule=rule: rule(manifest, _checker) for rule in (*SCHEMA_RULES, *AUTHOR_RULES)]  # type: ignore[misc]
    violations = [Violation(each.path, each.rule, each.message) for rule in rules for each in _evaluate(rule)]
    blocked, warned = _scan(manifest)
    asked = [Violation(each.path, each.rule, each.message) for each in _evaluate(lambda: iter(remarks(manifest)))]
    return violations + blocked, warned + asked


def _evaluate(rule: Callable[[], Iterator[Any]]) -> list[Any]:
    with suppress(*_NOT_EVALUABLE):
        return list(rule())
    return []


def _scan(manifest: Manifest) -> tuple[list[Violation], list[Violation]]:
    with suppress(*_NOT_EVALUABLE):
        result = scan_texts(manifest, DEFAULT_POLICY)
        blocked, warned = (
            [Violation(each.path, each.rule, each.message) for each in part] for part in (result.blocked, result.warned)
        )
        return blocked, warned
    return [], []


def _prefixed(violation: Any) -> Violation:
    return Violation(f"manifest.{violation.path}" if violation.path else "manifest", violation.rule, violation.message)


def _distinct(violations: list[Violation]) -> list[Violation]:
    """Keep the first violation of each path, unless several say different things about a schema."""
    kept: dict[tuple[str, str], Violation] = {}
    for violation in violations:
        path = violation.path.replace("#", "")
        key = (path, violation.rule if "schema" in path else "")
        kept.setdefault(key, Violation(path, violation.rule, violation.message))
    return list(kept.values())


def _problem(document: Any, violation: Violation, *, blocks: bool) -> Problem:
    path = violation.path.replace("#", "")
    return Problem(path, violation.rule, violation.message, advise(document, path, violation.rule), blocks)
