"""What a measurement is, and how it is reported: a table on the terminal, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ratio:
    """How a case stands to another one of the same run: as many calls, or as long a wait, times this."""

    to: str
    rps: float | None = None
    time: float | None = None
    """Of a call, when there is always a next one: one over the calls a second."""
    p50: float | None = None
    p99: float | None = None
    cpu: float | None = None
    target: str = ""
    """What we mean to reach, in words; empty where a ratio is only told."""
    met: bool | None = None


@dataclass(frozen=True)
class Row:
    """One case, measured once. What does not apply is zero."""

    suite: str
    case: str
    concurrency: int = 0
    rps: float = 0.0
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0
    cpu_us_per_call: float = 0.0
    ratio: Ratio | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """What only this case has: bytes a record, memory a tool, failures."""

    def against(self, floor: Row, *, target: str = "", met: bool | None = None) -> Row:
        """Return the row with its ratio to another row."""
        ratio = Ratio(
            to=floor.case,
            rps=_over(self.rps, floor.rps),
            time=_over(floor.rps, self.rps),
            p50=_over(self.p50_ms, floor.p50_ms),
            p99=_over(self.p99_ms, floor.p99_ms),
            cpu=_over(self.cpu_us_per_call, floor.cpu_us_per_call),
            target=target,
            met=met,
        )
        return replace(self, ratio=ratio)

    def aimed(self, part: str, comparison: str, bound: float) -> Row:
        """Return the row with a target for one part of its ratio, such as ("p50", "<=", 1.5), and whether it was
        met."""
        assert self.ratio is not None
        value = getattr(self.ratio, part)
        met = value is not None and (value <= bound if comparison == "<=" else value >= bound)
        return replace(self, ratio=replace(self.ratio, target=f"{part} {comparison} {bound:g}", met=met))

    def held(self, target: str, *, met: bool) -> Row:
        """Return the row with a target that is about itself, such as the memory it tells of, and no other row."""
        return replace(self, ratio=Ratio(to="", target=target, met=met))


def targets(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that say what we mean to reach."""
    return [row for row in rows if row.ratio is not None and row.ratio.met is not None]


def _over(value: float, floor: float) -> float | None:
    return round(value / floor, 3) if floor and value else None


# Too much for a line of the table; machines find it in the JSON.
ONLY_IN_JSON = frozenset({"cpu_us_by_process", "settings"})
HEADINGS = ("case", "c", "rps", "p50 ms", "p99 ms", "cpu us", "rps x", "p50 x", "target", "")


def table(rows: Iterable[Row]) -> list[str]:
    """Return the lines of a table of rows, in columns as wide as their content."""
    lines = [HEADINGS, *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return [_aligned(line, widths) for line in lines]


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    columns = enumerate(zip(line, widths, strict=True))
    texts = (text.ljust(width) if column in (0, 8, 9) else text.rjust(width) for column, (text, width) in columns)
    return "  ".join(texts).rstrip()


def cells(row: Row) -> tuple[str, ...]:
    """Return what a line of a table says of a row, one text for each heading."""
    ratio = row.ratio or Ratio("")
    verdict = {None: "", True: "met", False: "MISSED"}[ratio.met]
    told = ", ".join(f"{name} {value}" for name, value in row.more.items() if name not in ONLY_IN_JSON)
    return (
        row.case,
        str(row.concurrency or ""),
        _number(row.rps),
        _number(row.p50_ms),
        _number(row.p99_ms),
        _number(row.cpu_us_per_call),
        _number(ratio.rps),
        _number(ratio.p50),
        f"{ratio.target} {verdict}".strip(),
        told,
    )


def _number(value: float | None) -> str:
    if not value:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def document(rows: Sequence[Row]) -> str:
    """Return the rows as JSON, one object for each case."""
    return json.dumps([{**asdict(row), "ratio": asdict(row.ratio) if row.ratio else None} for row in rows], indent=1)


def write(rows: Sequence[Row], place: Path) -> None:
    """Write the rows where the next reader looks for them."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(document(rows) + "\n")
