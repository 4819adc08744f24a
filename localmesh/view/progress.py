"""What the runner says while it works, and where: to a terminal, to a file, to the command that waits for it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TextIO

Kind = Literal["ready", "failed", "died", "back", "stopped", "note", "refused", "up"]


@dataclass(frozen=True)
class Event:
    """One thing that happened to a part, or to the mesh as a whole."""

    kind: Kind
    part: str = ""
    text: str = ""
    seconds: float = 0.0
    restarts: int = 0
    lines: tuple[str, ...] = ()
    document: dict[str, Any] = field(default_factory=dict, repr=False)


Report = Callable[[Event], None]

_STYLES = {"ready": "green", "failed": "bold red", "died": "red", "back": "yellow", "refused": "bold red", "up": "bold"}


def words(event: Event) -> str:
    """Returns the event as a line for a person, with the log of a part that failed below it."""
    match event.kind:
        case "ready":
            return f"{event.part:<9} ready     {event.seconds:6.2f} s"
        case "stopped":
            return f"{event.part:<9} stopped   {event.seconds:6.2f} s{event.text}"
        case "died":
            return f"{event.part} died again ({event.text}), next try in {event.seconds:.1f} s"
        case "back":
            return f"{event.part} died ({event.text}), back after {event.seconds:.1f} s (restart {event.restarts})"
        case "failed":
            return "\n".join((f"{event.part} failed: {event.text}", *(f"  {line}" for line in event.lines)))
        case _:
            return event.text


def unfailing(report: Report) -> Report:
    """Returns a report that never raises: a reader that went away must not take the mesh with it."""

    def careful(event: Event) -> None:
        with contextlib.suppress(OSError, ValueError):
            report(event)

    return careful


def report_to_file(stream: TextIO) -> Report:
    """Returns a report that writes plain lines."""

    def report(event: Event) -> None:
        stream.write(words(event) + "\n")
        stream.flush()

    return report


def report_to_terminal(stream: TextIO) -> Report:
    """Returns a report that writes coloured lines to a terminal, plain ones to anything else."""
    if not stream.isatty():
        return report_to_file(stream)
    from rich.console import Console  # costs memory that a runner in the background need not pay
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    return lambda event: console.print(Text(words(event), style=_STYLES.get(event.kind, "")))


def report_to_pipe(descriptor: int) -> Report:
    """Returns a report that sends events to the process at the other end, for as long as it listens."""

    return lambda event: _write_all(descriptor, json.dumps(asdict(event)).encode() + b"\n")


def _write_all(descriptor: int, content: bytes) -> None:
    with open(descriptor, "wb", closefd=False) as pipe:
        pipe.write(content)


def event_from_line(line: bytes) -> Event:
    """Returns what `report_to_pipe` wrote."""
    fields = json.loads(line)
    return Event(**{**fields, "lines": tuple(fields["lines"])})
