"""Measures the precision and recall of redaction on labelled texts, for each kind and in total.

`python -m tools.measure_redaction labelled.ndjson` prints the table of docs/redaction.md. A line of the file is
`{"text": ...}` or `{"json": ...}` with `"expect": [[kind, secret], ...]`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from libs.common.json.jsonio import dump, parse
from libs.common.redaction.scanner import Scanner

TOTAL = "total"


@dataclass
class Score:
    """The true positives, false negatives and false positives of one kind."""

    found: int = 0
    missed: int = 0
    mistaken: int = 0

    @property
    def precision(self) -> float:
        """True positives among all removed parts."""
        return self.found / (self.found + self.mistaken) if self.found + self.mistaken else 1.0

    @property
    def recall(self) -> float:
        """True positives among all labelled parts."""
        return self.found / (self.found + self.missed) if self.found + self.missed else 1.0


@dataclass
class Measurement:
    """The scores of all kinds, and the snippets with an error."""

    scores: dict[str, Score] = field(default_factory=dict)
    wrong: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    snippets: int = 0

    def of(self, kind: str) -> Score:
        """Return the score of a kind."""
        return self.scores.setdefault(kind, Score())


def labelled(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the labelled snippets of a file."""
    for line in path.read_bytes().splitlines():
        snippet = parse(line)
        assert isinstance(snippet, dict)
        yield snippet


def measure(snippets: Iterable[dict[str, Any]], scanner: Scanner) -> Measurement:
    """Measure the scanner. A secret is found if no part of it is left and its kind is reported."""
    measured = Measurement()
    for snippet in snippets:
        measured.snippets += 1
        redacted = scanner.text(snippet["text"]) if "text" in snippet else scanner.value(snippet["json"])
        shown = redacted.value if "text" in snippet else dump(redacted.value).decode()
        seen = Counter(finding.kind for finding in redacted.findings)
        correct = True
        for kind, secret in snippet["expect"]:
            gone = str(secret) not in shown and seen[kind] > 0
            seen[kind] -= gone
            correct = correct and gone
            for score in (measured.of(kind), measured.of(TOTAL)):
                score.found += gone
                score.missed += not gone
        for kind, mistaken in seen.items():
            correct = correct and not mistaken
            measured.of(kind).mistaken += mistaken
            measured.of(TOTAL).mistaken += mistaken
        if not correct:
            measured.wrong.append((shown, snippet))
    return measured


def table(measured: Measurement) -> str:
    """Return the scores as a table in Markdown."""
    rows = ["| kind | labelled | precision | recall |", "|---|---|---|---|"]
    for kind in sorted(measured.scores, key=lambda kind: (kind == TOTAL, kind)):
        score = measured.scores[kind]
        rows.append(f"| {kind} | {score.found + score.missed} | {score.precision:.3f} | {score.recall:.3f} |")
    return "\n".join(rows)


def main(arguments: list[str]) -> None:
    """Print the table, and with `--wrong` the snippets with an error."""
    measured = measure(labelled(Path(arguments[0])), Scanner())
    sys.stdout.write(f"{measured.snippets} snippets\n\n{table(measured)}\n")
    if "--wrong" in arguments:
        sys.stdout.writelines(f"\n{shown}\n  {snippet}\n" for shown, snippet in measured.wrong)


if __name__ == "__main__":
    main(sys.argv[1:])
