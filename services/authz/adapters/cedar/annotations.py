"""What the annotations of a policy say. They end up in decisions and in the evidence, so they must be there, be known and tell
the truth: a misspelt obligation would bind nobody."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from services.authz.adapters.cedar.tokenizer import PolicyText
from services.authz.domain.model import Obligation
from services.authz.domain.policies.model import Problem

INVOKE = "invoke"
WITHOUT_APPROVAL = "invoke_without_approval"
DEFAULT_APPROVERS = ("approvers",)

ALLOW, DENY, NEEDS_APPROVAL = "allow", "deny", "needs_approval"
_POINTER = re.compile(r"(/([^~/,]|~[01])*)+")
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_GROUP = re.compile(r"[^\s,]{1,128}")
_MAX_ID, _MAX_REASON, _MAX_LISTED = 128, 512, 64
_MAX_ROWS, _MAX_TIER, _MAX_QUORUM = 1_000_000, 4, 100


@dataclass(frozen=True, slots=True)
class PolicyNotes:
    """What the annotations of one policy say."""

    id: str
    reason: str
    effect: str
    approvers: tuple[str, ...]
    quorum: int
    obligations: tuple[Obligation, ...]
    labels: tuple[str, ...]


def notes_of(annotations: Mapping[str, str]) -> PolicyNotes:
    """Read annotations in which nothing is wrong."""
    return PolicyNotes(
        id=annotations["id"],
        reason=annotations["reason"],
        effect=annotations["effect"],
        approvers=_listed(annotations.get("approvers")) or DEFAULT_APPROVERS,
        quorum=int(annotations.get("quorum") or 1),
        obligations=tuple(
            Obligation(kind, () if kind in _BARE else _listed(annotations[name]))
            for name, kind in _OBLIGATIONS.items()
            if name in annotations
        ),
        labels=_listed(annotations.get("label")),
    )


def note_problems(policy: PolicyText, parsed: Mapping[str, Any], taken: Mapping[str, str]) -> Iterator[Problem]:
    """Return what is wrong with the annotations of a policy; `taken` are the ids of those before it, and where they are."""
    annotations: dict[str, str] = {name: text or "" for name, text in (parsed.get("annotations") or {}).items()}
    own = annotations.get("id", "")
    for name, message in _problems(parsed, annotations, taken):
        line, column = policy.place(_place(policy, name))
        yield Problem(policy.document, line, column, own, "annotation", message)


def _problems(
    parsed: Mapping[str, Any], annotations: Mapping[str, str], taken: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    own = annotations.get("id", "")
    if not own or len(own) > _MAX_ID:
        yield "id", f"the policy needs an @id of 1 to {_MAX_ID} characters"
    elif own in taken:
        yield "id", f'@id("{own}") is taken by another policy, in {taken[own]}'
    if not 0 < len(annotations.get("reason", "")) <= _MAX_REASON:
        yield "reason", f"the policy needs a @reason of 1 to {_MAX_REASON} characters"
    effect = _effect(parsed)
    if effect is None:
        yield "", "a forbid must name the one action that it forbids"
    elif annotations.get("effect") != effect:
        yield "effect", f'the policy needs @effect("{effect}"), for that is what it does'
    for name, text in annotations.items():
        if name not in _KNOWN:
            yield name, f"@{name} is not known; it would bind nobody"
            continue
        effects, form, check = _KNOWN[name]
        if effect is not None and effect not in effects:
            yield name, f"@{name} says nothing on a policy whose effect is {effect}"
        elif not check(text):
            yield name, f"@{name} must be {form}"


def _effect(parsed: Mapping[str, Any]) -> str | None:
    if parsed["effect"] == "permit":
        return ALLOW
    if parsed["action"]["op"] != "==":
        return None
    return NEEDS_APPROVAL if parsed["action"]["entity"]["id"] == WITHOUT_APPROVAL else DENY


def _place(policy: PolicyText, name: str) -> int:
    """Where an annotation is; where the policy's own words begin if it is not there."""
    tokens = policy.tokens
    for mark, word in pairwise(tokens):
        if mark.text == "@" and word.text == name:
            return mark.start
    heads = (token.start for token in tokens if token.text in ("permit", "forbid"))
    return tokens[0].start if name == "id" else next(heads, tokens[0].start)


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _all(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        parts = [part.strip() for part in text.split(",")]
        return len(parts) <= _MAX_LISTED and all(pattern.fullmatch(part) for part in parts)

    return check


def _within(lowest: int, highest: int) -> Callable[[str], bool]:
    return lambda text: text.isascii() and text.isdecimal() and len(text) < 10 and lowest <= int(text) <= highest


def _anything(text: str) -> bool:
    return True


_ANY, _RUNS, _ASKS = {ALLOW, DENY, NEEDS_APPROVAL}, {ALLOW, NEEDS_APPROVAL}, {NEEDS_APPROVAL}
_OBLIGATIONS = {
    "redact": "redact_fields",
    "cap_rows": "cap_rows",
    "sandbox_tier": "sandbox_tier",
    "require_dry_run": "dry_run",
    "redact_pii": "redact_pii",
}
# Obligations that are what they are: there is nothing to say about how much.
_BARE = frozenset({"dry_run", "redact_pii"})
# On which effects each annotation means something, what it must be, and how that is checked.
_KNOWN: Mapping[str, tuple[set[str], str, Callable[[str], bool]]] = {
    "id": (_ANY, "", _anything),
    "reason": (_ANY, "", _anything),
    "effect": (_ANY, "", _anything),
    "approvers": (_ASKS, "groups, separated by commas", _all(_GROUP)),
    "quorum": (_ASKS, f"a whole number from 1 to {_MAX_QUORUM}", _within(1, _MAX_QUORUM)),
    "redact": (_RUNS, "JSON pointers, separated by commas; * stands for every entry", _all(_POINTER)),
    "cap_rows": (_RUNS, f"a whole number from 0 to {_MAX_ROWS}", _within(0, _MAX_ROWS)),
    "sandbox_tier": (_RUNS, f"a whole number from 1 to {_MAX_TIER}", _within(1, _MAX_TIER)),
    "require_dry_run": (_RUNS, 'nothing but "true"', lambda text: text == "true"),
    "redact_pii": (_RUNS, 'nothing but "true"', lambda text: text == "true"),
    "label": ({ALLOW}, "labels of small letters, digits, _ and -, separated by commas", _all(_LABEL)),
}
