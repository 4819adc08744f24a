"""Runs the scan and separates blocking findings from warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

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
from services.registry.domain.publishing.scan.lookalikes import KnownName, Resemblance, resemblances
from services.registry.domain.publishing.scan.policy import FindingAction, ScanClass, ScanPolicy
from services.registry.domain.publishing.scan.texts import Text, texts_of
from services.registry.domain.trust.look_alikes import AlikePair

# Limits the size of the response to a hostile manifest.
_MOST_FINDINGS = 50


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The blocking violations and the warnings."""

    blocked: tuple[Violation, ...] = ()
    warned: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True)
class NameScanResult(ScanResult):
    """The findings about names, and the pairs of names that are alike and not blocked."""

    pairs: tuple[AlikePair, ...] = ()

    def joined(self, later: NameScanResult) -> NameScanResult:
        """Return both results as one, each finding once."""
        return NameScanResult(
            tuple(dict.fromkeys((*self.blocked, *later.blocked))),
            tuple(dict.fromkeys((*self.warned, *later.warned))),
            tuple(dict.fromkeys((*self.pairs, *later.pairs))),
        )


def scan_texts(manifest: Manifest, policy: ScanPolicy) -> ScanResult:
    """Scan every text of a manifest. Takes a while for a large or hostile one."""
    return ScanResult(*_by_action(_texts(manifest), policy))


def scan_names(manifest: Manifest, known: Iterable[KnownName], policy: ScanPolicy, owner: str) -> NameScanResult:
    """Compare the names of a manifest with existing names. `owner` owns, or will own, its namespace."""
    # One namespace resembles another once, however many tools it has.
    found = {(each.path, each.pair(manifest.name)): each for each in resemblances(manifest, known, owner)}
    named = list(islice(found.items(), _MOST_FINDINGS))
    pairs = dict.fromkeys(pair for (_, pair), each in named if policy.actions[each.kind] is FindingAction.WARN)
    violations = _by_action(((each.kind, _name_violation(each)) for _, each in named), policy)
    return NameScanResult(*violations, tuple(pairs))


def _by_action(
    findings: Iterable[tuple[ScanClass, Violation]], policy: ScanPolicy
) -> tuple[tuple[Violation, ...], tuple[Violation, ...]]:
    """Return the findings that block and those that warn."""
    by_action: dict[FindingAction, dict[Violation, None]] = {FindingAction.BLOCK: {}, FindingAction.WARN: {}}
    for kind, violation in findings:
        reported = by_action[policy.actions[kind]]
        if len(reported) < _MOST_FINDINGS:
            reported[violation] = None
    return tuple(by_action[FindingAction.BLOCK]), tuple(by_action[FindingAction.WARN])


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


def _name_violation(resemblance: Resemblance) -> Violation:
    words = "looks like" if resemblance.kind is ScanClass.HOMOGLYPH else "is one edit away from"
    return Violation(resemblance.path, f"scan.{resemblance.kind}", f"{words} `{resemblance.other}` of another owner")
