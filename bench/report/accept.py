"""Keep the last run as the accepted one: `python -m bench.report.accept`. It is what the README shows, and all of the
results that is committed."""

from __future__ import annotations

import json
from pathlib import Path

from bench.__main__ import RESULTS
from bench.suites import ONLY_WHEN_NAMED, SUITES

ENDINGS = ("json", "md", "svg")


def accept(results: Path) -> list[Path]:
    """Copy the last run's files, and let its report show its own chart; return what was written. Raises ValueError
    for a run in part or one
    that gave a suite up, and FileNotFoundError where there was none."""
    measured = {row["suite"] for row in json.loads((results / "latest.json").read_text())}
    if missing := [name for name in SUITES if name not in measured | ONLY_WHEN_NAMED]:
        raise ValueError(f"the last run has no {', '.join(missing)}; only a whole one is accepted")
    texts = {ending: (results / f"latest.{ending}").read_text() for ending in ENDINGS}
    texts["md"] = texts["md"].replace("(latest.svg)", "(accepted.svg)")
    written = [results / f"accepted.{ending}" for ending in ENDINGS]
    for file, text in zip(written, texts.values(), strict=True):
        file.write_text(text)
    return written


if __name__ == "__main__":
    for place in accept(RESULTS):
        print(place)
