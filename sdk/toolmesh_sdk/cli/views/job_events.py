"""Shows the events of an invocation: as lines, or as a progress bar on a terminal."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from toolmesh.executor.v1 import invocation_pb2 as ipb

from toolmesh_sdk.cli.views import output
from toolmesh_sdk.jobs import event_state

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_MAX_PART = 200


def describe(event: ipb.InvocationEvent) -> str:
    """Return an event as one line."""
    match event.WhichOneof("event"):
        case "progress":
            return describe_progress(event.progress)
        case "log_message":
            severity = str(ipb.LogSeverity.Name(event.log_message.severity)).removeprefix("LOG_SEVERITY_").lower()
            return f"{severity}: {event.log_message.text}"
        case "partial_result":
            return f"part: {_shortened(event.partial_result.content)}"
        case "input_request":
            return f"asks: {event.input_request.message}"
        case "checkpoint":
            return f"checkpoint {event.checkpoint.number} {event.checkpoint.label}".rstrip()
    return event_state(event)


def describe_progress(progress: ipb.Progress) -> str:
    """Return how far an invocation is as one line."""
    parts = []
    if progress.HasField("percent"):
        parts.append(f"{progress.percent:.0f} %")
    if progress.current_step:
        parts.append(f"step {progress.current_step}" + (f" of {progress.total_steps}" if progress.total_steps else ""))
    return "  ".join([*parts, progress.message]).strip() or "progress"


class EventView:
    """Shows events on stderr while an invocation runs."""

    def __init__(self) -> None:
        self._console = output.err()
        self._live: Progress | None = None
        self._bar: TaskID | None = None

    def opened(self) -> AbstractContextManager[Any]:
        """Draw while the context is open. Without a terminal, events are lines."""
        if not self._console.is_terminal:
            return nullcontext()
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
        self._live = Progress(*columns, TimeElapsedColumn(), console=self._console, transient=True)
        self._bar = self._live.add_task("started", total=None)
        return self._live

    def show(self, event: ipb.InvocationEvent) -> None:
        """Show an event."""
        kind = event.WhichOneof("event")
        if self._live is None or self._bar is None:
            if kind != "ended":
                self._console.print(output.text((describe(event), "dim")))
        elif kind == "progress":
            done, total = _share(event.progress)
            text = output.printable(describe_progress(event.progress))
            self._live.update(self._bar, description=text, completed=done, total=total)
        elif kind == "transition":
            self._live.update(self._bar, description=event_state(event))
        elif kind != "ended":
            self._live.console.print(output.text((describe(event), "dim")))


def _share(progress: ipb.Progress) -> tuple[float, float | None]:
    """Return how much is done, of how much; None if that is unknown."""
    if progress.HasField("percent"):
        return progress.percent, 100.0
    if progress.total_steps:
        return float(progress.current_step), float(progress.total_steps)
    return 0.0, None


def _shortened(content: bytes) -> str:
    try:
        text = json.dumps(json.loads(content), ensure_ascii=False)
    except ValueError:
        text = content.decode(errors="replace")
    return text if len(text) <= _MAX_PART else text[:_MAX_PART] + "…"
