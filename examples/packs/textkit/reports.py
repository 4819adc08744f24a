"""write_report and remove_report: keep reports as files of the volume `reports`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolmesh_tool import Call, ToolFailure, previewed_by

_VOLUME = Path("/volumes/reports")


def _place(name: str) -> Path:
    # The schema allows letters, digits and dashes, so the name is one step below the volume.
    return _VOLUME / f"{name}.md"


def _content(arguments: dict[str, Any]) -> str:
    return f"# {arguments['title']}\n\n{arguments['body'].rstrip()}\n"


def forecast_report(arguments: dict[str, Any], call: Call) -> dict[str, Any]:
    """Say what writing a report would do."""
    place = _place(arguments["name"])
    operation = "update" if place.exists() else "create"
    call.report_effect(f"file:reports/{place.name}", operation)
    call.expect("a report of that name may be replaced", arguments["replace"] or operation == "create")
    call.impact(f"One report would be {operation}d.")
    return {"report": place.name, "bytes": len(_content(arguments).encode())}


@previewed_by(forecast_report)
def write_report(arguments: dict[str, Any], call: Call) -> dict[str, Any]:
    """Write a report, and say how that is undone."""
    place, content = _place(arguments["name"]), _content(arguments)
    if place.exists() and not arguments["replace"]:
        raise ToolFailure("there is a report of that name already")
    place.write_text(content)
    call.undo({"name": arguments["name"]})
    return {"report": place.name, "bytes": len(content.encode())}


def remove_report(arguments: dict[str, Any], call: Call) -> dict[str, Any]:
    """Remove a report, and say how it is written again. Without a preview of its own: it runs on a copy that is
    thrown away."""
    place = _place(arguments["name"])
    if not place.exists():
        return {"removed": False}
    title, _, body = place.read_text().partition("\n")
    call.undo({"name": arguments["name"], "title": title.removeprefix("# "), "body": body.strip("\n")})
    place.unlink()
    return {"removed": True}
