"""Compiles policy sets: parses policies, validates them strictly against the schema, checks annotations, and slices
them.

All problems of a set are reported at once, with line and column, before the set can be stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cedarpy
import orjson

from libs.common.json.canonical import digest
from services.authz.adapters.cedar.annotations import PolicyAnnotations, annotation_problems, parse_annotations
from services.authz.adapters.cedar.context_usage import context_fields_read, widen
from services.authz.adapters.cedar.slicing import (
    UNSLICED_POLICIES,
    PolicyIndex,
    PolicySlice,
    compile_parsed_slice,
    compile_slice,
)
from services.authz.adapters.cedar.source_locations import find_syntax_problem, type_problems, with_suggestion
from services.authz.adapters.cedar.time_zones import unknown_zones, zones_read
from services.authz.adapters.cedar.tokenizer import PolicyText, line_and_column, split_policies
from services.authz.domain.decisions.limits import LIMITS_FILE, Limits, LimitsError, parse_limits
from services.authz.domain.model import ContextField
from services.authz.domain.policies.model import Documents, PolicyProblem

SCHEMA_FILE = "schema.cedarschema"
MAX_POLICIES = 5_000
MAX_SET_BYTES = 4 * 1024 * 1024
MAX_PROBLEMS = 100
# Depth of the JSON format, which has two levels for each operator. Bounded because the code that reads it is recursive.
MAX_DEPTH = 180
# Cedar reads JSON to a depth of 128 levels, some of which enclose the conditions.
_MAX_JSON_DEPTH = 110
# Characters that make a text look different from what it means: they change the direction of text or are invisible. A
# lone carriage return is one: it ends a comment for Cedar but not for editors, so a policy could look like a comment.
_HIDDEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_NAME = re.compile(r"^\s*(\w+)\??\s*:", re.MULTILINE)


class PolicySetError(Exception):
    """Lists all problems of a policy set."""

    def __init__(self, problems: Iterable[PolicyProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{p.document}:{p.line}:{p.column}: {p.message}" for p in self.problems))


@dataclass(frozen=True)
class Policy:
    """One policy of a set."""

    annotations: PolicyAnnotations
    text: str
    parsed: Mapping[str, Any]
    document: str
    line: int
    context_fields: frozenset[ContextField]
    """The per-call context that it reads."""


@dataclass(frozen=True)
class PolicySet:
    """A compiled policy set."""

    version: str
    schema: cedarpy.Schema
    policies: Mapping[str, Policy]
    """By their names in Cedar, in document order."""
    static: PolicyIndex
    """The policies that read no per-call context."""
    widened: PolicyIndex
    """The other policies, widened so that each matches whenever the original could match for any context."""
    unwidened: Mapping[PolicySlice, PolicySlice]
    """The original policies by their slices in `widened`."""
    limits: Limits
    zones: frozenset[str]
    """The time zones that policies name."""


class CedarCompiler:
    """Compiles documents to policy sets, under one schema."""

    def __init__(self, schema_text: str, *, unsliced: int = UNSLICED_POLICIES) -> None:
        """Sets with more than `unsliced` policies are sliced."""
        self._schema_text, self._unsliced = schema_text, unsliced
        self._schema = cedarpy.Schema.from_str(schema_text)
        self._attributes = frozenset(_NAME.findall(schema_text))

    def version(self, documents: Documents) -> str:
        """Return the version of a set: the digest of its documents and the schema."""
        return digest({**documents, SCHEMA_FILE: self._schema_text})

    def compile(self, documents: Documents) -> PolicySet:
        """Return the compiled set. Raises PolicySetError with all problems."""
        problems, policies = self._check_documents(documents)
        if problems:
            raise PolicySetError(problems)
        named = {str(index): policy for index, policy in enumerate(policies)}
        texts = {name: policy.text for name, policy in named.items()}
        contextual = {name: policy.parsed for name, policy in named.items() if policy.context_fields}
        static = {name: policy.parsed for name, policy in named.items() if not policy.context_fields}
        widened = PolicyIndex(
            {name: _widen_within_depth(parsed) for name, parsed in contextual.items()},
            compile_parsed_slice,
            unsliced=0,
        )
        return PolicySet(
            version=self.version(documents),
            schema=self._schema,
            policies=named,
            static=PolicyIndex(static, lambda parsed: compile_slice(parsed, texts), unsliced=self._unsliced),
            widened=widened,
            unwidened={
                one: compile_slice({name: contextual[name] for name in one.names}, texts) for one in widened.slices
            },
            limits=parse_limits(documents[LIMITS_FILE]) if LIMITS_FILE in documents else Limits(),
            zones=frozenset().union(*(zones_read(policy.parsed["conditions"]) for policy in policies)),
        )

    def validate(self, documents: Documents) -> tuple[list[PolicyProblem], int]:
        """Return at most MAX_PROBLEMS problems, and the number of valid policies."""
        problems, policies = self._check_documents(documents)
        return problems, len(policies)

    def _check_documents(self, documents: Documents) -> tuple[list[PolicyProblem], list[Policy]]:
        problems = [*_document_problems(documents), *_limit_problems(documents)]
        texts = [
            policy
            for name in sorted(documents)
            if name.endswith(".cedar") and not any(p.document == name for p in problems)
            for policy in split_policies(name, documents[name])
        ]
        if problems and (not texts or any(not problem.document for problem in problems)):
            return problems, []
        if not texts or len(texts) > MAX_POLICIES:
            message = f"there are more than {MAX_POLICIES} policies" if texts else "there is no policy"
            return [*problems, PolicyProblem("", 0, 0, "", "size", message)], []
        syntax_problems, parsable = _split_parsable(texts)
        problems.extend(syntax_problems)
        policies: list[Policy] = []
        if parsable:
            policy_problems, policies = self._check_policies(parsable)
            problems.extend(policy_problems)
        order = {name: index for index, name in enumerate(sorted(documents))}
        problems.sort(key=lambda p: (order.get(p.document, -1), p.line, p.column))
        return problems[:MAX_PROBLEMS], policies

    def _check_policies(self, texts: Sequence[PolicyText]) -> tuple[list[PolicyProblem], list[Policy]]:
        """Check types, annotations and depth of policies that can be parsed."""
        joined = "\n".join(text.text for text in texts)
        document = orjson.loads(cedarpy.policies_to_json_str(joined))
        parsed: Mapping[str, Any] = document["staticPolicies"]
        problems = list(self._type_problems(joined, texts, parsed))
        taken: dict[str, str] = {}
        policies: list[Policy] = []
        for index, text in enumerate(texts):
            policy = parsed.get(f"policy{index}")
            if policy is None:
                problems.append(_at_head(text, "template", "templates are not supported; write a policy"))
                continue
            own_problems = list(annotation_problems(text, policy, taken))
            if _depth(policy["conditions"]) > MAX_DEPTH:
                own_problems.append(_at_head(text, "size", f"operators are chained more than {MAX_DEPTH // 2} deep"))
            else:
                own_problems += [_at_head(text, "zone", words) for words in unknown_zones(policy["conditions"])]
            problems.extend(own_problems)
            policy_id = (policy.get("annotations") or {}).get("id") or ""
            taken.setdefault(policy_id, f"{text.document} on line {text.line}")
            if not own_problems:
                policies.append(_policy(text, policy))
        return problems, policies

    def _type_problems(
        self, joined: str, texts: Sequence[PolicyText], parsed: Mapping[str, Any]
    ) -> Iterator[PolicyProblem]:
        result = cedarpy.validate_policies(joined, self._schema, release_gil=True)
        messages: dict[str, list[str]] = {}
        for error in result.errors:
            messages.setdefault(error.policy_id, []).append(error.error)
        if not result.validation_passed and not messages.keys() & {f"policy{index}" for index in range(len(texts))}:
            message = next((error.error for error in result.errors), "validation failed")
            yield PolicyProblem("", 0, 0, "", "type", message)
        for index, text in enumerate(texts[: len(texts) if messages else 0]):
            name = f"policy{index}"
            if name in messages:
                policy_id = ((parsed.get(name) or {}).get("annotations") or {}).get("id") or ""
                for problem in type_problems(text, policy_id, messages[name], self._validator_messages):
                    message = with_suggestion(problem.message, self._attributes)
                    yield PolicyProblem(text.document, problem.line, problem.column, policy_id, "type", message)

    def _validator_messages(self, text: str) -> list[str]:
        return [error.error for error in cedarpy.validate_policies(text, self._schema).errors]


def read_documents(folder: Path) -> dict[str, str]:
    """Read the documents of a folder: every .cedar file, and limits.json if it exists."""
    paths = [*sorted(folder.glob("*.cedar")), folder / LIMITS_FILE]
    return {path.name: path.read_text() for path in paths if path.exists()}


def compiler_for(folder: Path) -> CedarCompiler:
    """Return a compiler with the schema of a folder."""
    return CedarCompiler((folder / SCHEMA_FILE).read_text())


def load_policies(folder: Path) -> PolicySet:
    """Compile the documents of a folder under its schema. Raises PolicySetError with all problems."""
    return compiler_for(folder).compile(read_documents(folder))


def _document_problems(documents: Documents) -> Iterator[PolicyProblem]:
    if sum(len(text.encode()) for text in documents.values()) > MAX_SET_BYTES:
        yield PolicyProblem("", 0, 0, "", "size", f"the set has more than {MAX_SET_BYTES} bytes")
    for name, text in documents.items():
        if not name.endswith(".cedar") and name != LIMITS_FILE:
            yield PolicyProblem(name, 0, 0, "", "document", f"a set consists of *.cedar files and {LIMITS_FILE}")
        elif (hidden := _HIDDEN.search(text)) is not None:
            line, column = line_and_column(text, hidden.start())
            message = f"the character U+{ord(hidden.group()):04X} makes the text look different from what it means"
            yield PolicyProblem(name, line, column, "", "text", message)


def _limit_problems(documents: Documents) -> Iterator[PolicyProblem]:
    if LIMITS_FILE in documents:
        try:
            parse_limits(documents[LIMITS_FILE])
        except LimitsError as error:
            for problem in error.problems:
                yield PolicyProblem(LIMITS_FILE, problem.line, problem.column, "", problem.rule, problem.message)


def _split_parsable(texts: Sequence[PolicyText]) -> tuple[list[PolicyProblem], list[PolicyText]]:
    """Separate policies that can be parsed from the problems of those that cannot."""
    if all(text.size_problem() is None for text in texts):
        # All at once; if that fails, one by one to find the faulty ones.
        with suppress(ValueError):
            cedarpy.PolicySet.from_str("\n".join(text.text for text in texts), release_gil=True)
            return [], list(texts)
    problems: list[PolicyProblem] = []
    parsable: list[PolicyText] = []
    for text in texts:
        if len(problems) >= MAX_PROBLEMS:
            break
        problem = find_syntax_problem(text)
        parsable.append(text) if problem is None else problems.append(problem)
    return problems, parsable


def _policy(text: PolicyText, parsed: Mapping[str, Any]) -> Policy:
    return Policy(
        annotations=parse_annotations(parsed["annotations"]),
        text=text.text,
        parsed=parsed,
        document=text.document,
        line=text.line,
        context_fields=context_fields_read(parsed["conditions"]),
    )


def _widen_within_depth(parsed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Widen a policy; drop all conditions if the result would be too deep for Cedar."""
    widened = widen(parsed)
    return widened if _depth(widened["conditions"]) <= _MAX_JSON_DEPTH else {**widened, "conditions": []}


def _depth(conditions: list[Any]) -> int:
    """Return the nesting depth that conditions will have once they are joined into one."""
    deepest, level = 0, list[Any](condition["body"] for condition in conditions)
    while level:
        deepest += 1
        level = [child for value in level if isinstance(value, dict | list) for child in _children(value)]
    return deepest + 2 * len(conditions)


def _children(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _at_head(text: PolicyText, rule: str, message: str) -> PolicyProblem:
    line, column = text.line_and_column(text.tokens[0].start)
    return PolicyProblem(text.document, line, column, "", rule, message)
