"""A folder of Cedar policies, read once: parsed, validated strictly against its schema, its annotations checked.

Whatever is wrong is found here, before the process takes a call, and everything that is wrong is named at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cedarpy
import orjson

from libs.common.canonical import digest

INVOKE = "invoke"
WITHOUT_APPROVAL = "invoke_without_approval"
DEFAULT_APPROVERS = ("approvers",)
SCHEMA_FILE = "schema.cedarschema"
# What the executor's cache cannot know when it reuses a decision for the same caller and tool.
_PER_CALL = frozenset({"session_id", "arguments_digest"})


class PolicySetError(Exception):
    """Says everything that is wrong with a policy set."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True, slots=True)
class PolicyNotes:
    """What the annotations of one policy say."""

    id: str
    reason: str
    approvers: tuple[str, ...]
    quorum: int


@dataclass(frozen=True)
class PolicySet:
    """Policies that may be asked."""

    version: str
    policies: cedarpy.PolicySet
    schema: cedarpy.Schema
    notes: Mapping[str, PolicyNotes]
    """By Cedar's own id of each policy, in the order of the files."""
    reads_arguments_or_session: bool
    """True if an answer may differ between two calls of the same caller to the same tool."""


def load_policies(folder: Path) -> PolicySet:
    """Read every .cedar file of a folder and its schema. Raises PolicySetError with all that is wrong."""
    texts = {path.name: path.read_text() for path in sorted(folder.glob("*.cedar"))}
    schema_text = (folder / SCHEMA_FILE).read_text()
    source = "\n".join(texts.values())
    result = cedarpy.validate_policies(source, schema_text)
    if not result.validation_passed:
        raise PolicySetError(str(error) for error in result.errors)
    document = orjson.loads(cedarpy.policies_to_json_str(source))
    policies: dict[str, Any] = document["staticPolicies"]
    problems = [*_problems(policies), *(f"{name} is a template" for name in document.get("templates", {}))]
    if problems:
        raise PolicySetError(problems)
    return PolicySet(
        version=digest({**texts, SCHEMA_FILE: schema_text}),
        policies=cedarpy.PolicySet.from_str(source),
        schema=cedarpy.Schema.from_str(schema_text),
        notes={name: _notes(policies[name]["annotations"]) for name in sorted(policies, key=_position)},
        reads_arguments_or_session=any(_reads_call(policy["conditions"]) for policy in policies.values()),
    )


def _problems(policies: Mapping[str, Any]) -> Iterator[str]:
    """Annotations end up in decisions and in the evidence, so they must be there, be unique and tell the truth."""
    if not policies:
        yield "there is no policy"
    seen: set[str] = set()
    for name in sorted(policies, key=_position):
        annotations = policies[name].get("annotations") or {}
        label = annotations.get("id") or name
        if not annotations.get("id") or label in seen:
            yield f"{label} needs an @id that no other policy has"
        if not annotations.get("reason"):
            yield f"{label} needs a @reason"
        if not _is_quorum(annotations.get("quorum") or "1"):
            yield f"{label} needs a @quorum of at least 1"
        yield from _effect_problems(label, policies[name], annotations.get("effect"))
        seen.add(label)


def _effect_problems(label: str, policy: Mapping[str, Any], claimed: str | None) -> Iterator[str]:
    if policy["effect"] == "permit":
        effect = "allow"
    elif policy["action"]["op"] != "==":
        yield f"{label} must name the one action it forbids"
        return
    else:
        effect = "needs_approval" if policy["action"]["entity"]["id"] == WITHOUT_APPROVAL else "deny"
    if claimed != effect:
        yield f'{label} needs @effect("{effect}"), for that is what it does'


def _is_quorum(text: str) -> bool:
    return text.isdecimal() and int(text) >= 1


def _notes(annotations: Mapping[str, str]) -> PolicyNotes:
    groups = tuple(group.strip() for group in (annotations.get("approvers") or "").split(",") if group.strip())
    return PolicyNotes(
        id=annotations["id"],
        reason=annotations["reason"],
        approvers=groups or DEFAULT_APPROVERS,
        quorum=int(annotations.get("quorum") or 1),
    )


def _position(name: str) -> int:
    return int(name.removeprefix("policy"))


def _reads_call(node: Any) -> bool:
    """Look for a use of the context other than the attributes that stay the same from call to call."""
    if isinstance(node, list):
        return any(_reads_call(item) for item in node)
    if not isinstance(node, dict):
        return False
    if node.get("Var") == "context":
        return True
    for operator in (".", "has"):
        access = node.get(operator)
        if isinstance(access, dict) and access.get("left") == {"Var": "context"}:
            return access.get("attr") in _PER_CALL
    return any(_reads_call(value) for value in node.values())
