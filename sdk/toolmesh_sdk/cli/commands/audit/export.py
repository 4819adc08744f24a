"""`toolmesh audit export`: exports audit records with their proofs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.inputs.timestamps import parse_time
from toolmesh_sdk.cli.views import output


@report_errors
@add_target_options()
def export(
    out: Annotated[Path, typer.Option("--out", help="The folder to write to; new or empty.")],
    shard: Annotated[int | None, typer.Option(min=0, help="Only this shard.", show_default="all")] = None,
    begin: Annotated[
        str, typer.Option("--from", help="The first sequence, or a time such as 2026-11-15T08:00:00Z.")
    ] = "",
    end: Annotated[str, typer.Option("--to", help="The sequence or time after the last record.")] = "",
    parquet: Annotated[bool, typer.Option("--parquet", help="Also write the records as a Parquet file.")] = False,
    ocsf: Annotated[bool, typer.Option("--ocsf", help="Also write the records as OCSF events for a SIEM.")] = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Export the log, or a part of it, with its proofs.

    With --json: {"folder", "records", "manifests": {folder: digest}, "verifier_key"}.

    \b
    Examples:
      toolmesh audit export --out evidence/
      toolmesh audit export --out archive/ --shard 0
    """
    from toolmesh_sdk.audit.export.exporter import Selection
    from toolmesh_sdk.audit.export.exporter import export as write_export
    from toolmesh_sdk.audit.remote import RemoteLog

    if shard is not None and (begin or end):
        raise typer.BadParameter("use --shard or --from and --to, not both", param_hint="--shard")
    first, from_time = _parse_bound(begin, "--from")
    behind, to_time = _parse_bound(end, "--to")
    selection = Selection(shard=shard, first=first, end=behind, from_time=from_time, to_time=to_time)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise typer.BadParameter(f"{out} is not an empty folder", param_hint="--out")
    with open_client(target) as client:
        with output.err().status("exporting") as status:
            try:
                done = write_export(
                    RemoteLog(client.transport, target.timeout),
                    out,
                    selection,
                    parquet=parquet,
                    ocsf=ocsf,
                    progress=lambda count: status.update(f"{count} records"),
                )
            except ValueError as error:
                # The log itself is inconsistent; the verifier explains how.
                output.err().print(output.text(f"The log cannot be exported: {error}. Run `toolmesh audit verify`."))
                raise typer.Exit(FAILED) from None
    if as_json:
        content = {"records": done.records, "manifests": done.digests, "verifier_key": done.verifier_key}
        output.print_json({"folder": str(out), **content})
        return
    if not done.digests:
        output.err().print("Nothing to export.")
        return
    console = output.out()
    console.print(output.text(f"{done.records} records in {out}"))
    for name, digest in done.digests.items():
        console.print(output.text((f"  {name}: {digest}", "dim")))
    console.print(
        output.text(("  verify it anywhere with: ", "dim"), f"toolmesh audit verify {out} --key {done.verifier_key}")
    )


def _parse_bound(text: str, hint: str) -> tuple[int | None, datetime | None]:
    """Parse a sequence, or a time in UTC unless it has an offset."""
    if not text:
        return None, None
    if text.isdigit():
        return int(text), None
    try:
        return None, parse_time(text)
    except ValueError:
        raise typer.BadParameter(f"{text} is neither a sequence nor a time", param_hint=hint) from None
