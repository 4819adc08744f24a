"""Renders previews for `toolmesh call --preview`."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from toolmesh_sdk.cli.tool_names import short_name
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.results import format_change, isoformat_or_none

if TYPE_CHECKING:
    from toolmesh_sdk.preview import Preview


_LEFT_OUT = {
    "needs_approval": "The predicted result is shown only after approval.",
    "too_large": "The predicted result is too large to show.",
}


def preview_document(preview: Preview) -> dict[str, Any]:
    """Return a preview as a JSON object."""
    return {
        "changes": [asdict(change) for change in preview.changes],
        "declared_effects": [asdict(effect) for effect in preview.declared_effects],
        "preconditions": [asdict(each) for each in preview.preconditions],
        "impact": preview.impact,
        "predicted_result": preview.predicted_result,
        "result_left_out": preview.result_left_out,
        "approval_required": preview.approval_required,
        "preview_token": preview.token,
        "expire_time": isoformat_or_none(preview.expires),
        "tool_version": preview.tool_version,
        "invocation_id": preview.invocation_id,
        "trace_id": preview.trace_id,
    }


def print_preview(preview: Preview, key: str = "") -> None:
    """Print the changes, preconditions and predicted result, and the options for the call, with `key` among them."""
    console = output.out()
    summary = "would change:" if preview.changes else "predicts no changes."
    console.print(output.text((short_name(preview.tool_version), "bold"), f" {summary}"))
    for change in preview.changes:
        digests = format_change(change.digest_before, change.digest_after)
        console.print(output.text(f"  {change.operation:<7} {change.resource}", (f"  {digests}".rstrip(), "dim")))
    if preview.impact:
        console.print(output.text(f"Impact: {preview.impact}"))
    for condition in preview.preconditions:
        holds = ("holds", "green") if condition.holds else ("DOES NOT HOLD", "bold red")
        console.print(output.text("Precondition ", holds, f": {condition.description}"))
    if preview.predicted_result is not None:
        console.print("It would return:")
        output.print_content(preview.predicted_result)
    elif preview.result_left_out:
        console.print(_LEFT_OUT.get(preview.result_left_out, "The predicted result is left out."))
    _print_next_step(preview, key)


def _print_next_step(preview: Preview, key: str) -> None:
    console = output.out()
    until = f" until {preview.expires:%Y-%m-%d %H:%M:%S} UTC" if preview.expires else ""
    if preview.approval_required:
        console.print(
            output.text(("Nothing was done. The call needs the approval of a person: it is refused with a", "yellow"))
        )
        console.print(output.text(("ticket, and runs when repeated with --ticket once that is approved.", "yellow")))
        console.print(output.text(f"Ask for it{until} with"))
    else:
        console.print(output.text(f"Nothing was done. To do it, repeat the call{until} with"))
    options = ["--key", key] if key else []
    console.print(output.text(f"  {shlex.join([*options, '--preview-token', preview.token])}"))
