"""The finding classes of the scan and the action for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class ScanClass(StrEnum):
    """The class of a finding."""

    INSTRUCTION = "instruction"
    """A sentence that instructs the model instead of describing the tool."""
    INVISIBLE = "invisible"
    """An invisible character, or one that changes the order of others."""
    COMMENT = "comment"
    """Markup that hides text from people."""
    ENCODED = "encoded"
    """An encoded blob."""
    STEERING = "steering"
    """A claim to be preferred over other tools."""
    MIXED_SCRIPT = "mixed_script"
    """A word that mixes letters of several scripts."""
    HOMOGLYPH = "homoglyph"
    """A name that looks exactly like another."""
    LOOKALIKE = "lookalike"
    """A name that is one edit away from another."""


class FindingAction(StrEnum):
    """The effect of a finding."""

    BLOCK = "block"
    WARN = "warn"


# Classes that hardly have a legitimate use block; the others warn.
DEFAULTS: Mapping[ScanClass, FindingAction] = {
    ScanClass.INSTRUCTION: FindingAction.BLOCK,
    ScanClass.INVISIBLE: FindingAction.BLOCK,
    ScanClass.COMMENT: FindingAction.BLOCK,
    ScanClass.ENCODED: FindingAction.WARN,
    ScanClass.STEERING: FindingAction.WARN,
    ScanClass.MIXED_SCRIPT: FindingAction.BLOCK,
    ScanClass.HOMOGLYPH: FindingAction.BLOCK,
    ScanClass.LOOKALIKE: FindingAction.WARN,
}


@dataclass(frozen=True)
class ScanPolicy:
    """An action for every class."""

    actions: Mapping[ScanClass, FindingAction]

    @classmethod
    def parse(cls, text: str) -> ScanPolicy:
        """Parse `encoded=block,lookalike=block`; other classes keep their default. Raises ValueError."""
        actions = dict(DEFAULTS)
        for entry in filter(None, (part.strip() for part in text.split(","))):
            name, _, action = entry.partition("=")
            try:
                actions[ScanClass(name)] = FindingAction(action)
            except ValueError:
                raise ValueError("is not a list of class=block or class=warn") from None
        return cls(actions)

    def __str__(self) -> str:
        return ",".join(f"{name}={action}" for name, action in self.actions.items())


DEFAULT_POLICY = ScanPolicy(DEFAULTS)
