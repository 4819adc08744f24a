"""Reports the runner's progress to a terminal, a file, or the waiting command."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TextIO

Kind = Literal["ready", "failed", "died", "back", "restarted", "stopped", "note", "refused", "up"]


@dataclass(frozen=True)
class Event:
    """An event of a part or of the whole mesh."""

    kind: Kind
    part: str = ""
    text: str = ""
    seconds: float = 0.0
    restarts: int = 0
    lines: tuple[str, ...] = ()
    document: dict[str, Any] = field(default_factory=dict, repr=False)


Report = Callable[[Event], None]

_STYLES = {"ready": "green", "failed": "bold red", "died": "red", "back": "yellow", "refused": "bold red"}


def describe_event(event: Event) -> str:
    """Renders the event as a line, followed by the log of a failed part."""
    match event.kind:
        case "ready":
            return f"{event.part:<10} ready     {event.seconds:6.2f} s   {event.text}".rstrip()
        case "stopped":
            return f"{event.part:<10} stopped   {event.seconds:6.2f} s{event.text}"
        case "died":
            return f"{event.part} died again ({event.text}), next try in {event.seconds:.1f} s"
        case "back":
            return f"{event.part} died ({event.text}), back after {event.seconds:.1f} s (restart {event.restarts})"
        case "restarted":
            return f"{event.part} restarted, ready after {event.seconds:.1f} s"
        case "failed":
            return "\n".join((f"{event.part} failed: {event.text}", *(f"  {line}" for line in event.lines)))
        case _:
            return event.text


def without_raising(report: Report) -> Report:
    """Wraps a report so that it never raises: a closed reader must not stop the mesh."""

    def careful(event: Event) -> None:
        with contextlib.suppress(OSError, ValueError):
            report(event)

    return careful


def report_to_file(stream: TextIO) -> Report:
    """Returns a report that writes plain lines."""

    def report(event: Event) -> None:
        stream.write(describe_event(event) + "\n")
        stream.flush()

    return report


def report_to_terminal(stream: TextIO) -> Report:
    """Returns a report that writes coloured lines to a terminal, plain ones to anything else."""
    if not stream.isatty():
        return report_to_file(stream)
    from rich.console import Console  # costs memory that a runner in the background need not pay
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    return lambda event: console.print(Text(describe_event(event), style=_STYLES.get(event.kind, "")))


def report_to_pipe(descriptor: int) -> Report:
    """Returns a report that sends events to the pipe's reader while it is open."""

    return lambda event: _write_all(descriptor, json.dumps(asdict(event)).encode() + b"\n")


def _write_all(descriptor: int, content: bytes) -> None:
    with open(descriptor, "wb", closefd=False) as pipe:
        pipe.write(content)


def event_from_line(line: bytes) -> Event:
    """Parses a line of `report_to_pipe`."""
    fields = json.loads(line)
    return Event(**{**fields, "lines": tuple(fields["lines"])})
