"""Previews as `toolmesh call --preview` shows them."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from toolmesh_sdk.cli.inputs.admin_connection import short
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.results import iso

if TYPE_CHECKING:
    from toolmesh_sdk.preview import Preview


_LEFT_OUT = {
    "needs_approval": "What it would return is not shown before it is approved.",
    "too_large": "What it would return is too large to be shown.",
}


def preview_document(preview: Preview) -> dict[str, Any]:
    """Return a preview as JSON values."""
    return {
        "changes": [asdict(change) for change in preview.changes],
        "preconditions": [asdict(each) for each in preview.preconditions],
        "impact": preview.impact,
        "predicted_result": preview.predicted_result,
        "result_left_out": preview.result_left_out,
        "approval_required": preview.approval_required,
        "preview_token": preview.token,
        "expire_time": iso(preview.expires),
        "tool_version": preview.tool_version,
        "invocation_id": preview.invocation_id,
        "trace_id": preview.trace_id,
    }


def print_preview(preview: Preview, key: str = "") -> None:
    """Print a preview for a person: what would change first, then what it takes, then how to go on, under the key where there is one."""
    console = output.out()
    begins = "would change:" if preview.changes else "would change nothing that it knows of."
    console.print(output.text((short(preview.tool_version), "bold"), f" {begins}"))
    for change in preview.changes:
        console.print(output.text(f"  {change.operation:<7} {change.resource}"))
    if preview.impact:
        console.print(output.text(f"Impact: {preview.impact}"))
    for each in preview.preconditions:
        holds = ("holds", "green") if each.holds else ("DOES NOT HOLD", "bold red")
        console.print(output.text("Precondition ", holds, f": {each.description}"))
    if preview.predicted_result is not None:
        console.print("It would return:")
        output.print_content(preview.predicted_result)
    elif preview.result_left_out:
        console.print(_LEFT_OUT.get(preview.result_left_out, "What it would return is left out."))
    _how_to_go_on(preview, key)


def _how_to_go_on(preview: Preview, key: str) -> None:
    console = output.out()
    until = f" until {preview.expires:%Y-%m-%d %H:%M:%S} UTC" if preview.expires else ""
    if preview.approval_required:
        console.print(
            output.text(("Nothing was done. A person would have to approve the call, and approvals", "yellow"))
        )
        console.print(output.text(("cannot be given yet: it would be recorded and refused.", "yellow")))
        console.print(output.text(f"Once the policies no longer ask for one, repeat it{until} with"))
    else:
        console.print(output.text(f"Nothing was done. To do it, repeat the call{until} with"))
    said = ["--key", key] if key else []
    console.print(output.text(f"  {shlex.join([*said, '--preview-token', preview.token])}"))
