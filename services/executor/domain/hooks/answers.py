"""Parses the answers of hooks, strictly: an answer with an unknown or invalid member is a failure of the hook.

An answer is an object with any of

- `context`: a list of texts for the model to read;
- `input`: the arguments as the hook wants them, all of them; before the call only;
- `decision`: `continue`; in the pre phase also `ask` (requires approval) or `deny`; in the approval phase also `deny`;
- `risk`: facts about the risk of the call for policy to read, whole numbers by name; before the call only;
- `stop`: why the call must not continue, or its result is withheld; before and after the call only;
- `reason`: why, beside a decision.

`allow` is not a decision of a hook: only policy can allow a call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

# The limits of the risk facts in a policy check.
MAX_RISKS, MAX_RISK = 32, 2**63 - 1
_RISK_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
MAX_CONTEXTS, MAX_CONTEXT_LENGTH, MAX_REASON_LENGTH = 16, 4096, 500
_KEYS = {
    "pre": {"context", "input", "decision", "risk", "stop", "reason"},
    "approval": {"context", "decision", "reason"},
    "post": {"context", "decision", "stop", "reason"},
    "failure": {"context", "decision"},
}
_DECISIONS = {
    "pre": {"continue", "ask", "deny"},
    "approval": {"continue", "deny"},
    "post": {"continue"},
    "failure": {"continue"},
}


class HookFailedError(Exception):
    """A hook failed. The kind is one word for the record, such as `timeout`, and never contains the answer."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


@dataclass(frozen=True, slots=True)
class Answer:
    """The parsed answer of a hook."""

    context: tuple[str, ...] = ()
    input: dict[str, Any] | None = None
    denied: bool = False
    stopped: bool = False
    asks_approval: bool = False
    risk: tuple[tuple[str, int], ...] = ()
    reason: str = ""

    @property
    def stops(self) -> bool:
        """True if the call must not continue."""
        return self.denied or self.stopped

    @property
    def said(self) -> str:
        """A summary for the record: `continue`, `input+context`, `ask`, `denied`, `stopped`."""
        if self.stops:
            return "denied" if self.denied else "stopped"
        parts = [
            ("input", self.input is not None),
            ("context", bool(self.context)),
            ("risk", bool(self.risk)),
            ("ask", self.asks_approval),
        ]
        return "+".join(name for name, there in parts if there) or "continue"

    def with_input(self, arguments: dict[str, Any]) -> Answer:
        """Return the answer with other arguments."""
        return replace(self, input=arguments)


def parse_answer(value: Any, phase: str) -> Answer:
    """Parse an answer. None and an empty object mean that the call continues. Raises HookFailedError."""
    if value is None:
        return Answer()
    if not isinstance(value, dict) or not value.keys() <= _KEYS[phase]:
        raise HookFailedError("answer_invalid")
    decision = value.get("decision", "continue")
    if not isinstance(decision, str) or decision not in _DECISIONS[phase]:
        raise HookFailedError("answer_invalid")
    stop = _text(value.get("stop", ""))
    return Answer(
        context=_context(value.get("context", [])),
        input=_input(value),
        denied=decision == "deny",
        stopped="stop" in value,
        asks_approval=decision == "ask",
        risk=_risk(value.get("risk", {})),
        reason=stop or _text(value.get("reason", "")),
    )


def _context(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_CONTEXTS:
        raise HookFailedError("answer_invalid")
    if not all(isinstance(each, str) and 0 < len(each) <= MAX_CONTEXT_LENGTH for each in value):
        raise HookFailedError("answer_invalid")
    return tuple(value)


def _risk(value: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, dict) or len(value) > MAX_RISKS:
        raise HookFailedError("answer_invalid")
    for name, number in value.items():
        if not _RISK_NAME.fullmatch(name) or type(number) is not int or not -MAX_RISK - 1 <= number <= MAX_RISK:
            raise HookFailedError("answer_invalid")
    return tuple(value.items())


def _input(value: dict[str, Any]) -> dict[str, Any] | None:
    if "input" not in value:
        return None
    if not isinstance(value["input"], dict):
        raise HookFailedError("answer_invalid")
    return value["input"]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise HookFailedError("answer_invalid")
    return value[:MAX_REASON_LENGTH]
