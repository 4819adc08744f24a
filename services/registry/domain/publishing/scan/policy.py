"""What the scan looks for, and what a finding of each class does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class ScanClass(StrEnum):
    """A kind of finding."""

    INSTRUCTION = "instruction"
    """A sentence that commands the model instead of describing the tool."""
    INVISIBLE = "invisible"
    """A character that is not seen, or that changes the order in which others are."""
    COMMENT = "comment"
    """Markup that hides text from people."""
    ENCODED = "encoded"
    """A blob that only a decoder reads."""
    STEERING = "steering"
    """A claim to be chosen before other tools."""
    MIXED_SCRIPT = "mixed_script"
    """A word whose letters only look as if they were of one alphabet."""
    HOMOGLYPH = "homoglyph"
    """A name that looks exactly like another."""
    LOOKALIKE = "lookalike"
    """A name one slip of the finger away from another."""


class Action(StrEnum):
    """What a finding does."""

    BLOCK = "block"
    WARN = "warn"


# What has hardly an honest use blocks; what often has one warns.
DEFAULTS: Mapping[ScanClass, Action] = {
    ScanClass.INSTRUCTION: Action.BLOCK,
    ScanClass.INVISIBLE: Action.BLOCK,
    ScanClass.COMMENT: Action.BLOCK,
    ScanClass.ENCODED: Action.WARN,
    ScanClass.STEERING: Action.WARN,
    ScanClass.MIXED_SCRIPT: Action.BLOCK,
    ScanClass.HOMOGLYPH: Action.BLOCK,
    ScanClass.LOOKALIKE: Action.WARN,
}


@dataclass(frozen=True)
class ScanPolicy:
    """An action for every class."""

    actions: Mapping[ScanClass, Action]

    @classmethod
    def parse(cls, text: str) -> ScanPolicy:
        """Read `encoded=block,lookalike=block`; what is not named keeps its default. Raises ValueError for anything else."""
        actions = dict(DEFAULTS)
        for entry in filter(None, (part.strip() for part in text.split(","))):
            name, _, action = entry.partition("=")
            try:
                actions[ScanClass(name)] = Action(action)
            except ValueError:
                raise ValueError("is not a list of class=block or class=warn") from None
        return cls(actions)

    def __str__(self) -> str:
        return ",".join(f"{name}={action}" for name, action in self.actions.items())


DEFAULT_POLICY = ScanPolicy(DEFAULTS)
