"""write_report and remove_report: keep reports as files of the volume `reports`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypedDict

from toolmesh_tool import Call, Limits, ToolFailure, previewed_by, tool

_VOLUME = Path("/volumes/reports")

# A name is one step below the volume.
Name = Annotated[str, Limits(pattern="^[a-z0-9][a-z0-9-]{0,63}$", description="Lower case letters, digits and dashes.")]
Title = Annotated[str, Limits(min_length=1, max_length=200, pattern=r"^[^\n]+$")]
Body = Annotated[str, Limits(max_length=1_000_000)]


class Report(TypedDict):
    report: str
    bytes: Annotated[int, Limits(ge=0)]


class Removal(TypedDict):
    removed: bool


def _place(name: str) -> Path:
    return _VOLUME / f"{name}.md"


def _content(title: str, body: str) -> str:
    return f"# {title}\n\n{body.rstrip()}\n"


def forecast_report(call: Call, name: Name, title: Title, body: Body, replace: bool = False) -> Report:
    """Say what writing a report would do."""
    place = _place(name)
    operation = "update" if place.exists() else "create"
    call.report_effect(f"file:reports/{place.name}", operation)
    call.expect("a report of that name may be replaced", replace or operation == "create")
    call.impact(f"One report would be {operation}d.")
    return {"report": place.name, "bytes": len(_content(title, body).encode())}


@tool(
    namespace="samples",
    title="Write a report",
    mutation_class="write_reversible",
    compensation="tools/samples.remove_report",
    writes=["reports"],
    side_effects=[
        {"resource": "file:reports/*", "operation": "create"},
        {"resource": "file:reports/*", "operation": "update"},
    ],
    tier="process",
    timeout=2,
    memory="128Mi",
    tags=["text", "reports"],
    examples=[({"name": "first", "title": "First", "body": "All is well."}, {"report": "first.md", "bytes": 22})],
    manifest={"observability": {"audit_detail": "summary"}, "interface": {"safety": {"closed_world": True}}},
)
@previewed_by(forecast_report)
def write_report(call: Call, name: Name, title: Title, body: Body, replace: bool = False) -> Report:
    """Writes a report as a Markdown file of the volume `reports`. Refuses to replace one unless told to."""
    place, content = _place(name), _content(title, body)
    if place.exists() and not replace:
        raise ToolFailure("there is a report of that name already")
    place.write_text(content)
    call.undo({"name": name})
    return {"report": place.name, "bytes": len(content.encode())}


@tool(
    namespace="samples",
    title="Remove a report",
    mutation_class="write_reversible",
    compensation="tools/samples.write_report",
    # Without a preview of its own: it runs on a copy that is thrown away.
    dry_run=True,
    writes=["reports"],
    side_effects=[{"resource": "file:reports/*", "operation": "delete"}],
    idempotency={"mode": "key_required", "uncertain_outcome": "repeat"},
    tier="process",
    timeout=2,
    memory="128Mi",
    tags=["text", "reports"],
    examples=[({"name": "never-written"}, {"removed": False})],
    manifest={"observability": {"audit_detail": "summary"}, "interface": {"safety": {"closed_world": True}}},
)
def remove_report(call: Call, name: Name) -> Removal:
    """Removes a report from the volume `reports`; says so if there was none."""
    place = _place(name)
    if not place.exists():
        return {"removed": False}
    title, _, body = place.read_text().partition("\n")
    call.undo({"name": name, "title": title.removeprefix("# "), "body": body.strip("\n")})
    place.unlink()
    return {"removed": True}
