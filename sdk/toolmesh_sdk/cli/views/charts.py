"""Small charts and figures for a terminal: lines of blocks, bars, durations. Where the stream cannot carry blocks, ASCII."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from toolmesh_sdk.cli.views import output

_BLOCKS, _PLAIN = "·▁▂▃▄▅▆▇█", ".:-=+*#%@"
_NARROWEST_NAME = 16
_BARS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Names fold inside the terminal's width; figures are right-aligned and never break."""

    heading: str
    name: bool = False
    chart: bool = False
    style: str = ""


def spark(values: Sequence[float], width: int = 10) -> str:
    """Return one character for each value, higher for more; neighbours share one where there are more than `width`.
    A value above zero is never shown as none."""
    shared = _shared(values, width)
    most = max(shared, default=0) or 1
    steps = _BLOCKS if _blocks() else _PLAIN
    return "".join(steps[max(1, round(value / most * 8)) if value > 0 else 0] for value in shared)


def bar(value: float, most: float, width: int = 12) -> str:
    """Return a bar as long as the value's part of the most there is; at least a sliver if there is anything."""
    eighths = max(1, round(value / most * width * 8)) if value > 0 and most > 0 else 0
    if not _blocks():
        return "#" * max(eighths // 8, min(eighths, 1))
    return "█" * (eighths // 8) + (_BARS[eighths % 8] if eighths % 8 else "")


def duration(seconds: float) -> str:
    """Return a latency with three figures at most, in the unit that suits it."""
    if seconds < 0.0009995:
        return f"{seconds * 1e6:.3g} {'µs' if _blocks() else 'us'}"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def percent(rate: float) -> str:
    """Return a rate in percent. Only what is whole is called 100 %, and only what is nothing 0 %."""
    shown = f"{rate * 100:.1f}"
    if shown == "100.0" and rate < 1:
        shown = "99.9"
    if shown == "0.0" and rate > 0:
        shown = "<0.1"
    return shown.removesuffix(".0") + " %"


def money(micros: int) -> str:
    """Return a cost in units: to the hundredth, or with two figures where it is less than that."""
    units = micros / 1e6
    return f"{units:,.2f}" if abs(units) >= 0.01 else f"{units:.2g}"


def print_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under headings; columns that are empty in all of them are left out. A terminal that is too narrow for
    every chart gets those that fit, whole; a pipe gets lines that never wrap."""
    kept = [index for index in range(len(columns)) if any(row[index].strip() for row in rows)]
    console = output.out()
    if not console.is_terminal:
        _print_plain([columns[index] for index in kept], [[row[index] for index in kept] for row in rows])
        return
    while (
        len(fitting := [index for index in kept if columns[index].chart])
        and _width(columns, rows, kept) > console.width
    ):
        kept.remove(fitting[-1])
    columns, rows = [columns[index] for index in kept], [[row[index] for index in kept] for row in rows]
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(
            column.heading,
            overflow="fold",
            no_wrap=not column.name,
            justify="left" if column.name or column.chart else "right",
            style=column.style,
            min_width=_NARROWEST_NAME if column.name else None,
        )
    for row in rows:
        table.add_row(*(output.text(cell) for cell in row))
    console.print(table, soft_wrap=False)


def _print_plain(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    shown = [[column.heading for column in columns], *([output.printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in shown) for index in range(len(columns))]
    for row in shown:
        cells = [
            cell.ljust(width) if column.name or column.chart else cell.rjust(width)
            for cell, column, width in zip(row, columns, widths, strict=True)
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _width(columns: Sequence[Column], rows: Sequence[Sequence[str]], kept: Sequence[int]) -> int:
    widths = [max(len(columns[index].heading), *(len(row[index]) for row in rows)) for index in kept]
    bounded = [
        min(width, _NARROWEST_NAME) if columns[index].name else width for index, width in zip(kept, widths, strict=True)
    ]
    return sum(bounded) + 2 * len(kept)


def _shared(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    edges = [round(step * len(values) / width) for step in range(width + 1)]
    return [sum(values[start:end]) for start, end in pairwise(edges)]


def _blocks() -> bool:
    return (sys.stdout.encoding or "").lower().startswith("utf")
