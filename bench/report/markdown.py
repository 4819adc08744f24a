"""The report: what was aimed at and whether it was met, then every suite's table, in Markdown."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.environment.machine import MEGABYTE
from bench.report.measurement import HEADINGS, Row, cells, targets

_RATIOS = {"rps": "times as many calls as", "p50": "times the wait of", "p99": "times the longest wait of"}
_RATIOS |= {"cpu": "times the processor time of", "time": "times the time per call of"}


def machine() -> dict[str, str]:
    """Return what the figures depend on and a reader may know."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / MEGABYTE / 1024
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _processor(),
        "memory": f"{memory:.0f} GB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def markdown(rows: Sequence[Row], facts: dict[str, str], chart: str = "") -> str:
    """Return the report."""
    parts = ["# What a governed call costs", ""]
    parts += [
        "Everything is a ratio within one run on one machine; absolute figures mean little elsewhere. "
        + ", ".join(f"{name}: {value}" for name, value in facts.items())
        + "."
    ]
    if chart:
        parts += ["", f"![Calls answered, relative to the bare echo]({chart})"]
    parts += ["", "## Targets", "", *_targets(rows)]
    for suite in dict.fromkeys(row.suite for row in rows):
        of_suite = [row for row in rows if row.suite == suite]
        parts += ["", f"## {suite}", "", *_table(of_suite), *_settings(of_suite)]
    return "\n".join(parts) + "\n"


def _targets(rows: Iterable[Row]) -> list[str]:
    lines = ["| case | at once | aimed at | measured | against | |", "|---|---|---|---|---|---|"]
    for row in targets(rows):
        assert row.ratio is not None
        verdict = "met" if row.ratio.met else "**missed**"
        told = (row.case, row.concurrency or "", row.ratio.target, _measured(row), row.ratio.to, verdict)
        lines.append(_line(str(cell) for cell in told))
    return lines


def _measured(row: Row) -> str:
    """What the target is about: a part of the ratio, or what the row alone tells."""
    assert row.ratio is not None
    part = row.ratio.target.split(" ")[0]
    if part in _RATIOS:
        return f"{getattr(row.ratio, part)} {_RATIOS[part]}"
    return ", ".join(f"{name} {value}" for name, value in row.more.items() if not isinstance(value, dict))


def _table(rows: Iterable[Row]) -> list[str]:
    lines = [_line((*HEADINGS[:-1], "more")), "|---|" + "---:|" * 7 + "---|---|"]
    return [*lines, *(_line(cells(row)) for row in rows)]


def _settings(rows: Iterable[Row]) -> list[str]:
    """What peers were run with, each once."""
    told = dict.fromkeys(f"- {row.case}: {row.more['settings']}" for row in rows if "settings" in row.more)
    return ["", *told] if told else []


def _line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in texts) + " |"
