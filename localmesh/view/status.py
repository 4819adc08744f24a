"""Renders the status of a running mesh."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from rich.table import Table

from localmesh.state.runtime import with_memory, with_readiness
from localmesh.state.state import State


async def current(document: dict[str, Any], state: State) -> dict[str, Any]:
    """Returns the runtime document with current readiness and memory."""
    return with_memory(await with_readiness(document, state))


def table(document: dict[str, Any]) -> str:
    """Renders the status as a table."""
    rows = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("part", "address", "ops", "pid", "ready", "memory", "restarts"):
        rows.add_column(heading, justify="right" if heading in ("pid", "memory", "restarts") else "left")
    for entry in document["services"]:
        memory = f"{entry['rss_bytes'] / 1e6:.1f} MB {entry['memory_kind']}"
        ready = "yes" if entry["ready"] else "NO"
        cells = (entry["name"], entry["address"], entry["ops"], entry["pid"], ready, memory, entry["restarts"])
        rows.add_row(*("-" if cell is None else str(cell) for cell in cells))
    console = Console(file=io.StringIO(), width=110, highlight=False)
    console.print(rows)
    console.print(_totals(document))
    for entry in document["services"]:
        for line in entry.get("detail", ()):
            console.print(f"{entry['name']}: {line}", markup=False, soft_wrap=True)
    return str(console.file.getvalue()).rstrip()  # type: ignore[attr-defined]


def _totals(document: dict[str, Any]) -> str:
    seconds = document["ready_seconds"]
    ready = "still starting" if seconds is None else f"ready after {seconds:.1f} s"
    return (
        f"\n{document['gateway']['url']}   {ready}   "
        f"whole mesh {document['rss_bytes'] / 1e6:.0f} MB, of which the runner (pid {document['runner_pid']}) "
        f"{document['runner_rss_bytes'] / 1e6:.0f} MB\n"
        "memory: rss is resident memory; pss counts pages that PostgreSQL's processes share once"
    )
