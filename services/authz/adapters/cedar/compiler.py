"""Sets of Cedar policies: parsed, validated strictly against the schema, their annotations checked, and made ready to be asked.

Whatever is wrong is found here, before a set can be kept, and everything that is wrong is named at once, with its place.
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
from services.authz.adapters.cedar.annotations import PolicyNotes, note_problems, notes_of
from services.authz.adapters.cedar.context_usage import facts_read, widened
from services.authz.adapters.cedar.slicing import SMALL, Part, PolicyIndex, part_of, part_of_parsed
from services.authz.adapters.cedar.source_locations import syntax_problem, type_problems, with_suggestion
from services.authz.adapters.cedar.tokenizer import PolicyText, place_of, policies_in
from services.authz.domain.decisions.limits import LIMITS_FILE, Limits, LimitsError, parse_limits
from services.authz.domain.model import Fact
from services.authz.domain.policies.model import Documents, Problem

SCHEMA_FILE = "schema.cedarschema"
MAX_POLICIES = 5_000
MAX_SET_BYTES = 4 * 1024 * 1024
MAX_PROBLEMS = 100
# Of the parsed form, which has two levels for each operator; everything that reads it is recursive.
MAX_DEPTH = 180
# Cedar reads no deeper JSON than 128 levels, of which some lie around the conditions.
_PARSED_DEPTH = 110
# Characters that make a text read otherwise than it is: they turn the direction of what follows, or cannot be seen. A carriage return by
# itself is one: Cedar ends a comment there, and nobody else does, so that what follows would be law and look like a remark.
_HIDDEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_NAME = re.compile(r"^\s*(\w+)\??\s*:", re.MULTILINE)


class PolicySetError(Exception):
    """Says everything that is wrong with a policy set."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{p.document}:{p.line}:{p.column}: {p.message}" for p in self.problems))


@dataclass(frozen=True)
class Policy:
    """One policy of a set."""

    notes: PolicyNotes
    text: str
    parsed: Mapping[str, Any]
    document: str
    line: int
    reads: frozenset[Fact]
    """What of one call it reads."""


@dataclass(frozen=True)
class PolicySet:
    """Policies that may be asked."""

    version: str
    schema: cedarpy.Schema
    policies: Mapping[str, Policy]
    """By the name that Cedar knows each by, in the order of the documents."""
    steady: PolicyIndex
    """Those that read nothing that belongs to one call alone."""
    widened: PolicyIndex
    """Those that do, each so wide that it matches whenever it could with any facts."""
    narrow: Mapping[Part, Part]
    """The same as they are written, by the parts of `widened`."""
    limits: Limits


class CedarCompiler:
    """Makes sets out of documents, under one schema."""

    def __init__(self, schema_text: str, *, small: int = SMALL) -> None:
        """Sets with more than `small` policies are cut into parts."""
        self._schema_text, self._small = schema_text, small
        self._schema = cedarpy.Schema.from_str(schema_text)
        self._attributes = frozenset(_NAME.findall(schema_text))

    def version(self, documents: Documents) -> str:
        """Return the version of a set: the digest of its texts and of the schema that gives them meaning."""
        return digest({**documents, SCHEMA_FILE: self._schema_text})

    def compile(self, documents: Documents) -> PolicySet:
        """Return the set. Raises PolicySetError with all that is wrong."""
        problems, policies = self._examined(documents)
        if problems:
            raise PolicySetError(problems)
        named = {str(index): policy for index, policy in enumerate(policies)}
        texts = {name: policy.text for name, policy in named.items()}
        changing = {name: policy.parsed for name, policy in named.items() if policy.reads}
        steady = {name: policy.parsed for name, policy in named.items() if not policy.reads}
        wide = PolicyIndex({name: _widened(parsed) for name, parsed in changing.items()}, part_of_parsed, small=0)
        return PolicySet(
            version=self.version(documents),
            schema=self._schema,
            policies=named,
            steady=PolicyIndex(steady, lambda some: part_of(some, texts), small=self._small),
            widened=wide,
            narrow={part: part_of({name: changing[name] for name in part.names}, texts) for part in wide.parts},
            limits=parse_limits(documents[LIMITS_FILE]) if LIMITS_FILE in documents else Limits(),
        )

    def examine(self, documents: Documents) -> tuple[list[Problem], int]:
        """Return everything that is wrong, at most a hundred things, and how many policies are right."""
        problems, policies = self._examined(documents)
        return problems, len(policies)

    def _examined(self, documents: Documents) -> tuple[list[Problem], list[Policy]]:
        problems = [*_document_problems(documents), *_limit_problems(documents)]
        texts = [
            policy
            for name in sorted(documents)
            if name.endswith(".cedar") and not any(p.document == name for p in problems)
            for policy in policies_in(name, documents[name])
        ]
        if problems and (not texts or any(not problem.document for problem in problems)):
            return problems, []
        if not texts or len(texts) > MAX_POLICIES:
            message = f"there are more than {MAX_POLICIES} policies" if texts else "there is no policy"
            return [*problems, Problem("", 0, 0, "", "size", message)], []
        found, sound = _parsable(texts)
        problems.extend(found)
        policies: list[Policy] = []
        if sound:
            found, policies = self._checked(sound)
            problems.extend(found)
        order = {name: index for index, name in enumerate(sorted(documents))}
        problems.sort(key=lambda p: (order.get(p.document, -1), p.line, p.column))
        return problems[:MAX_PROBLEMS], policies

    def _checked(self, texts: Sequence[PolicyText]) -> tuple[list[Problem], list[Policy]]:
        """Check policies that can be parsed, each for itself and against each other."""
        joined = "\n".join(text.text for text in texts)
        document = orjson.loads(cedarpy.policies_to_json_str(joined))
        parsed: Mapping[str, Any] = document["staticPolicies"]
        problems = list(self._type_problems(joined, texts, parsed))
        taken: dict[str, str] = {}
        policies: list[Policy] = []
        for index, text in enumerate(texts):
            one = parsed.get(f"policy{index}")
            if one is None:
                problems.append(
                    _at_head(text, "template", "a template says nothing until it is filled in; write a policy")
                )
                continue
            found = list(note_problems(text, one, taken))
            if _depth(one["conditions"]) > MAX_DEPTH:
                found.append(_at_head(text, "size", f"operators are chained more than {MAX_DEPTH // 2} deep"))
            problems.extend(found)
            own = (one.get("annotations") or {}).get("id") or ""
            taken.setdefault(own, f"{text.document} on line {text.line}")
            if not found:
                reads = facts_read(one["conditions"])
                policies.append(Policy(notes_of(one["annotations"]), text.text, one, text.document, text.line, reads))
        return problems, policies

    def _type_problems(self, joined: str, texts: Sequence[PolicyText], parsed: Mapping[str, Any]) -> Iterator[Problem]:
        result = cedarpy.validate_policies(joined, self._schema, release_gil=True)
        said: dict[str, list[str]] = {}
        for error in result.errors:
            said.setdefault(error.policy_id, []).append(error.error)
        if not result.validation_passed and not said.keys() & {f"policy{index}" for index in range(len(texts))}:
            yield Problem("", 0, 0, "", "type", next((error.error for error in result.errors), "validation failed"))
        for index, text in enumerate(texts[: len(texts) if said else 0]):
            name = f"policy{index}"
            if messages := said.get(name):
                own = ((parsed.get(name) or {}).get("annotations") or {}).get("id") or ""
                for problem in type_problems(text, own, messages, self._words):
                    message = with_suggestion(problem.message, self._attributes)
                    yield Problem(text.document, problem.line, problem.column, own, "type", message)

    def _words(self, text: str) -> list[str]:
        return [error.error for error in cedarpy.validate_policies(text, self._schema).errors]


def documents_in(folder: Path) -> dict[str, str]:
    """Read the documents of a folder: every .cedar file, and the limits if there are any."""
    paths = [*sorted(folder.glob("*.cedar")), folder / LIMITS_FILE]
    return {path.name: path.read_text() for path in paths if path.exists()}


def compiler_for(folder: Path) -> CedarCompiler:
    """Return a compiler under the schema of a folder."""
    return CedarCompiler((folder / SCHEMA_FILE).read_text())


def load_policies(folder: Path) -> PolicySet:
    """Read the documents and the schema of a folder. Raises PolicySetError with all that is wrong."""
    return compiler_for(folder).compile(documents_in(folder))


def _document_problems(documents: Documents) -> Iterator[Problem]:
    if sum(len(text.encode()) for text in documents.values()) > MAX_SET_BYTES:
        yield Problem("", 0, 0, "", "size", f"the set has more than {MAX_SET_BYTES} bytes")
    for name, text in documents.items():
        if not name.endswith(".cedar") and name != LIMITS_FILE:
            yield Problem(name, 0, 0, "", "document", f"a set consists of *.cedar and {LIMITS_FILE}")
        elif (hidden := _HIDDEN.search(text)) is not None:
            line, column = place_of(text, hidden.start())
            message = f"the character U+{ord(hidden.group()):04X} makes the text read otherwise than it is"
            yield Problem(name, line, column, "", "text", message)


def _limit_problems(documents: Documents) -> Iterator[Problem]:
    if LIMITS_FILE in documents:
        try:
            parse_limits(documents[LIMITS_FILE])
        except LimitsError as error:
            for problem in error.problems:
                yield Problem(LIMITS_FILE, problem.line, problem.column, "", problem.rule, problem.message)


def _parsable(texts: Sequence[PolicyText]) -> tuple[list[Problem], list[PolicyText]]:
    """Tell policies that can be parsed from those that cannot."""
    if all(text.excess() is None for text in texts):
        # Where that fails, one by one, to see which.
        with suppress(ValueError):
            cedarpy.PolicySet.from_str("\n".join(text.text for text in texts), release_gil=True)
            return [], list(texts)
    problems: list[Problem] = []
    sound: list[PolicyText] = []
    for text in texts:
        if len(problems) >= MAX_PROBLEMS:
            break
        problem = syntax_problem(text)
        sound.append(text) if problem is None else problems.append(problem)
    return problems, sound


def _widened(parsed: Mapping[str, Any]) -> Mapping[str, Any]:
    """A wide policy; one that Cedar would find too deep becomes as wide as can be."""
    wide = widened(parsed)
    return wide if _depth(wide["conditions"]) <= _PARSED_DEPTH else {**wide, "conditions": []}


def _depth(conditions: list[Any]) -> int:
    """How deep conditions are nested, as they will be when all of them are one."""
    deepest, level = 0, list[Any](condition["body"] for condition in conditions)
    while level:
        deepest += 1
        level = [each for value in level if isinstance(value, dict | list) for each in _within(value)]
    return deepest + 2 * len(conditions)


def _within(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _at_head(text: PolicyText, rule: str, message: str) -> Problem:
    line, column = text.place(text.tokens[0].start)
    return Problem(text.document, line, column, "", rule, message)
