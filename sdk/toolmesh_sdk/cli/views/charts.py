"""Sparklines, bars, tables and number formats for a terminal; ASCII if the stream is not UTF-8."""

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
    """A column of a table. Names wrap within the terminal's width; numbers are right-aligned and never wrap."""

    heading: str
    name: bool = False
    chart: bool = False
    style: str = ""


def sparkline(values: Sequence[float], width: int = 10) -> str:
    """Return one block character per value; adjacent values are summed if there are more than `width`.
    A value above zero is never drawn as zero."""
    values_shown = _downsample(values, width)
    most = max(values_shown, default=0) or 1
    steps = _BLOCKS if _supports_blocks() else _PLAIN
    return "".join(steps[max(1, round(value / most * 8)) if value > 0 else 0] for value in values_shown)


def bar(value: float, most: float, width: int = 12) -> str:
    """Return a bar proportional to `value / most`; any value above zero has a visible part."""
    eighths = max(1, round(value / most * width * 8)) if value > 0 and most > 0 else 0
    if not _supports_blocks():
        return "#" * max(eighths // 8, min(eighths, 1))
    return "█" * (eighths // 8) + (_BARS[eighths % 8] if eighths % 8 else "")


def format_duration(seconds: float) -> str:
    """Format a duration with up to three digits and a suitable unit."""
    if seconds < 0.0009995:
        return f"{seconds * 1e6:.3g} {'µs' if _supports_blocks() else 'us'}"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def format_percent(rate: float) -> str:
    """Format a rate in percent. Only exact 1 is 100 %, and only exact 0 is 0 %."""
    shown = f"{rate * 100:.1f}"
    if shown == "100.0" and rate < 1:
        shown = "99.9"
    if shown == "0.0" and rate > 0:
        shown = "<0.1"
    return shown.removesuffix(".0") + " %"


def format_cost(micros: int) -> str:
    """Format a cost in units with two decimals; smaller amounts have two significant digits."""
    units = micros / 1e6
    if abs(units) >= 0.01:
        return f"{units:,.2f}"
    return f"{units:.2g}" if abs(units) >= 0.0001 else f"{units:.6f}".rstrip("0").rstrip(".")


def print_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print a table without its empty columns. A narrow terminal drops the charts that do not fit; a pipe gets lines
    that never wrap."""
    shown_columns = [index for index in range(len(columns)) if any(row[index].strip() for row in rows)]
    console = output.out()
    if not console.is_terminal:
        _print_plain(
            [columns[index] for index in shown_columns], [[row[index] for index in shown_columns] for row in rows]
        )
        return
    while (
        len(fitting := [index for index in shown_columns if columns[index].chart])
        and _width(columns, rows, shown_columns) > console.width
    ):
        shown_columns.remove(fitting[-1])
    columns, rows = (
        [columns[index] for index in shown_columns],
        [[row[index] for index in shown_columns] for row in rows],
    )
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


def _width(columns: Sequence[Column], rows: Sequence[Sequence[str]], shown_columns: Sequence[int]) -> int:
    widths = [max(len(columns[index].heading), *(len(row[index]) for row in rows)) for index in shown_columns]
    bounded = [
        min(width, _NARROWEST_NAME) if columns[index].name else width
        for index, width in zip(shown_columns, widths, strict=True)
    ]
    return sum(bounded) + 2 * len(shown_columns)


def _downsample(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    edges = [round(step * len(values) / width) for step in range(width + 1)]
    return [sum(values[start:end]) for start, end in pairwise(edges)]


def _supports_blocks() -> bool:
    return (sys.stdout.encoding or "").lower().startswith("utf")
