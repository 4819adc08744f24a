"""Runs the scan and separates blocking findings from warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from libs.common.errors import Violation
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.scan.confusables import mixes_scripts
from services.registry.domain.publishing.scan.instructions import (
    has_encoded_blob,
    has_hidden_markup,
    has_instruction,
    has_steering,
)
from services.registry.domain.publishing.scan.invisible import find_invisible
from services.registry.domain.publishing.scan.lookalikes import KnownName, resemblances
from services.registry.domain.publishing.scan.policy import FindingAction, ScanClass, ScanPolicy
from services.registry.domain.publishing.scan.texts import Text, texts_of

# Limits the size of the response to a hostile manifest.
_MOST_FINDINGS = 50


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The blocking violations and the warnings."""

    blocked: tuple[Violation, ...] = ()
    warned: tuple[Violation, ...] = ()


def scan(manifest: Manifest, known: Iterable[KnownName], policy: ScanPolicy, owner: str) -> ScanResult:
    """Scan every text and name of a manifest against existing names. `owner` owns, or will own, its namespace."""
    by_action: dict[FindingAction, dict[Violation, None]] = {FindingAction.BLOCK: {}, FindingAction.WARN: {}}
    for kind, violation in (*_texts(manifest), *_names(manifest, known, owner)):
        reported = by_action[policy.actions[kind]]
        if len(reported) < _MOST_FINDINGS:
            reported[violation] = None
    return ScanResult(tuple(by_action[FindingAction.BLOCK]), tuple(by_action[FindingAction.WARN]))


def _texts(manifest: Manifest) -> Iterator[tuple[ScanClass, Violation]]:
    seen = set[str]()
    for text in texts_of(manifest.document):
        if text.value not in seen:
            # Equal texts are scanned once; property names repeat often.
            seen.add(text.value)
            for kind, message in _suspicions(text):
                yield kind, Violation(text.path, f"scan.{kind}", message)


def _suspicions(text: Text) -> Iterator[tuple[ScanClass, str]]:
    hidden = find_invisible(text.value)
    if hidden:
        yield ScanClass.INVISIBLE, f"holds {hidden}"
    if has_instruction(text.value):
        yield ScanClass.INSTRUCTION, "instructs the model instead of describing the tool"
    if has_hidden_markup(text.value):
        yield ScanClass.COMMENT, "has markup that hides text from people"
    if mixes_scripts(text.value):
        yield ScanClass.MIXED_SCRIPT, "has letters that only look like those around them"
    if text.prose and has_steering(text.value):
        yield ScanClass.STEERING, "asks to be chosen over other tools"
    if text.prose and has_encoded_blob(text.value):
        yield ScanClass.ENCODED, "holds an encoded blob"


def _names(manifest: Manifest, known: Iterable[KnownName], owner: str) -> Iterator[tuple[ScanClass, Violation]]:
    for resemblance in resemblances(manifest, known, owner):
        words = "looks like" if resemblance.kind is ScanClass.HOMOGLYPH else "is one edit away from"
        yield (
            resemblance.kind,
            Violation(resemblance.path, f"scan.{resemblance.kind}", f"{words} `{resemblance.other}` of another owner"),
        )
