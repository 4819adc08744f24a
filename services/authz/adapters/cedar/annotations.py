"""Parses and checks the annotations of policies.

Annotations appear in decisions and in the audit log. Unknown, missing or wrong ones are refused: a misspelt obligation
would otherwise have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from services.authz.adapters.cedar.tokenizer import PolicyText
from services.authz.domain.model import Obligation
from services.authz.domain.policies.model import PolicyProblem

INVOKE = "invoke"
WITHOUT_APPROVAL = "invoke_without_approval"
DEFAULT_APPROVERS = ("approvers",)

ALLOW, DENY, NEEDS_APPROVAL = "allow", "deny", "needs_approval"
_POINTER = re.compile(r"(/([^~/,]|~[01])*)+")
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_GROUP = re.compile(r"[^\s,]{1,128}")
_MAX_ID, _MAX_REASON, _MAX_LISTED = 128, 512, 64
_MAX_ROWS, _MAX_TIER, _MAX_QUORUM, _MAX_PRIORITY = 1_000_000, 4, 100, 10


@dataclass(frozen=True, slots=True)
class PolicyAnnotations:
    """The parsed annotations of one policy."""

    id: str
    reason: str
    effect: str
    approvers: tuple[str, ...]
    quorum: int
    reason_required: bool
    obligations: tuple[Obligation, ...]
    labels: tuple[str, ...]
    cleared_labels: tuple[str, ...]


def parse_annotations(annotations: Mapping[str, str]) -> PolicyAnnotations:
    """Parse annotations that were checked."""
    return PolicyAnnotations(
        id=annotations["id"],
        reason=annotations["reason"],
        effect=annotations["effect"],
        approvers=_split_list(annotations.get("approvers")) or DEFAULT_APPROVERS,
        quorum=int(annotations.get("quorum") or 1),
        reason_required="approval_reason" in annotations,
        obligations=tuple(
            Obligation(kind, () if kind in _WITHOUT_VALUES else _split_list(annotations[name]))
            for name, kind in _OBLIGATIONS.items()
            if name in annotations
        ),
        labels=_split_list(annotations.get("label")),
        cleared_labels=_split_list(annotations.get("clear_label")),
    )


def annotation_problems(
    policy: PolicyText, parsed: Mapping[str, Any], taken: Mapping[str, str]
) -> Iterator[PolicyProblem]:
    """Yield the problems of a policy's annotations; `taken` maps the ids of earlier policies to their locations."""
    annotations: dict[str, str] = {name: text or "" for name, text in (parsed.get("annotations") or {}).items()}
    policy_id = annotations.get("id", "")
    for name, message in _problems(parsed, annotations, taken):
        line, column = policy.line_and_column(_offset_of(policy, name))
        yield PolicyProblem(policy.document, line, column, policy_id, "annotation", message)


def _problems(
    parsed: Mapping[str, Any], annotations: Mapping[str, str], taken: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    policy_id = annotations.get("id", "")
    if not policy_id or len(policy_id) > _MAX_ID:
        yield "id", f"the policy needs an @id of 1 to {_MAX_ID} characters"
    elif policy_id in taken:
        yield "id", f'@id("{policy_id}") is taken by another policy, in {taken[policy_id]}'
    if not 0 < len(annotations.get("reason", "")) <= _MAX_REASON:
        yield "reason", f"the policy needs a @reason of 1 to {_MAX_REASON} characters"
    effect = _effect(parsed)
    if effect is None:
        yield "", "a forbid must name exactly one action"
    elif annotations.get("effect") != effect:
        yield "effect", f'the policy needs @effect("{effect}"), which is its actual effect'
    for name, text in annotations.items():
        if name not in ANNOTATIONS:
            yield name, f"@{name} is not a known annotation"
            continue
        effects, form, check = ANNOTATIONS[name]
        if effect is not None and effect not in effects:
            yield name, f"@{name} has no meaning on a policy whose effect is {effect}"
        elif not check(text):
            yield name, f"@{name} must be {form}"


def _effect(parsed: Mapping[str, Any]) -> str | None:
    if parsed["effect"] == "permit":
        return ALLOW
    if parsed["action"]["op"] != "==":
        return None
    return NEEDS_APPROVAL if parsed["action"]["entity"]["id"] == WITHOUT_APPROVAL else DENY


def _offset_of(policy: PolicyText, name: str) -> int:
    """Return the offset of an annotation; of `permit` or `forbid` if the annotation is missing."""
    tokens = policy.tokens
    for token, following in pairwise(tokens):
        if token.text == "@" and following.text == name:
            return token.start
    heads = (token.start for token in tokens if token.text in ("permit", "forbid"))
    return tokens[0].start if name == "id" else next(heads, tokens[0].start)


def _split_list(text: str | None) -> tuple[str, ...]:
    return tuple(item.strip() for item in (text or "").split(",") if item.strip())


def _list_of(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        items = [item.strip() for item in text.split(",")]
        return len(items) <= _MAX_LISTED and all(pattern.fullmatch(item) for item in items)

    return check


def _integer_in(lowest: int, highest: int) -> Callable[[str], bool]:
    return lambda text: text.isascii() and text.isdecimal() and len(text) < 10 and lowest <= int(text) <= highest


def _any_text(text: str) -> bool:
    return True


_ANY_EFFECT = {ALLOW, DENY, NEEDS_APPROVAL}
_RUNNING = {ALLOW, NEEDS_APPROVAL}
_OBLIGATIONS = {
    "redact": "redact_fields",
    "cap_rows": "cap_rows",
    "sandbox_tier": "sandbox_tier",
    "max_priority": "max_priority",
    "require_dry_run": "dry_run",
    "redact_pii": "redact_pii",
}
_WITHOUT_VALUES = frozenset({"dry_run", "redact_pii"})
# For each annotation: the effects it applies to, the form in words, and the check of the form.
ANNOTATIONS: Mapping[str, tuple[set[str], str, Callable[[str], bool]]] = {
    "id": (_ANY_EFFECT, "", _any_text),
    "reason": (_ANY_EFFECT, "", _any_text),
    "effect": (_ANY_EFFECT, "", _any_text),
    "approvers": ({NEEDS_APPROVAL}, "groups, separated by commas", _list_of(_GROUP)),
    "quorum": ({NEEDS_APPROVAL}, f"a whole number from 1 to {_MAX_QUORUM}", _integer_in(1, _MAX_QUORUM)),
    "approval_reason": ({NEEDS_APPROVAL}, '"required"', lambda text: text == "required"),
    "redact": (_RUNNING, "JSON pointers, separated by commas; * stands for every entry", _list_of(_POINTER)),
    "cap_rows": (_RUNNING, f"a whole number from 0 to {_MAX_ROWS}", _integer_in(0, _MAX_ROWS)),
    "sandbox_tier": (_RUNNING, f"a whole number from 1 to {_MAX_TIER}", _integer_in(1, _MAX_TIER)),
    "max_priority": (_RUNNING, f"a whole number from 1 to {_MAX_PRIORITY}", _integer_in(1, _MAX_PRIORITY)),
    "require_dry_run": (_RUNNING, '"true"', lambda text: text == "true"),
    "redact_pii": (_RUNNING, '"true"', lambda text: text == "true"),
    "label": ({ALLOW}, "labels of lower-case letters, digits, _ and -, separated by commas", _list_of(_LABEL)),
    "clear_label": ({ALLOW}, "labels of lower-case letters, digits, _ and -, separated by commas", _list_of(_LABEL)),
}
