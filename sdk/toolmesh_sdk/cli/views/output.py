"""Prints JSON, text and tables: results on stdout, remarks and errors on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_UPPER_CONTROL = re.compile(r"[\x7f-\x9f]")


def print_json(document: Any, *, lines: bool = False, flush: bool = False) -> None:
    """Print a JSON document to stdout, indented; on one line with `lines`."""
    sys.stdout.write(_json_text(document, None if lines else 2) + "\n")
    if lines or flush:
        sys.stdout.flush()


def printable(value: str) -> str:
    """Escape control characters: texts of tools and errors are not trusted."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", value)


def text(*parts: str | tuple[str, str]) -> Text:
    """Return a line of parts, each plain or styled."""
    from rich.text import Text

    styled = [part if isinstance(part, tuple) else (part, "") for part in parts]
    return Text.assemble(*((printable(part), style) for part, style in styled))


def out() -> Console:
    """Return the console for results, on stdout."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def err() -> Console:
    """Return the console for remarks and errors, on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_content(content: Any) -> None:
    """Print content as indented JSON, coloured on a terminal, never truncated."""
    console = out()
    if not console.is_terminal:
        print_json(content)
        return
    from rich.highlighter import JSONHighlighter

    console.print(JSONHighlighter()(_json_text(content, 2)))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. A terminal gets columns that wrap within its width; a pipe gets lines that never wrap."""
    console = out()
    if not console.is_terminal:
        _print_columns(headings, rows)
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(text(cell) for cell in row))
    console.print(table, soft_wrap=False)


def _json_text(document: Any, indent: int | None) -> str:
    # Escapes are used if the stream is not UTF-8. JSON does not escape the upper control characters itself.
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    written = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    return _UPPER_CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", written)


def _print_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    shown = [headings, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in shown) for index in range(len(headings))]
    for row in shown:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
