"""`toolmesh audit export`: evidence to take away."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.target import Place, open_client
from toolmesh_sdk.cli.views import output


@reported
def export(
    out: Annotated[Path, typer.Option("--out", help="The folder to write; it must be new or empty.")],
    shard: Annotated[int | None, typer.Option(min=0, help="Only this shard.", show_default="all")] = None,
    begin: Annotated[
        str, typer.Option("--from", help="From this sequence, or this time such as 2026-11-15T08:00:00Z.")
    ] = "",
    end: Annotated[str, typer.Option("--to", help="Up to but without this sequence or time.")] = "",
    parquet: Annotated[bool, typer.Option("--parquet", help="Write the records as a Parquet file, too.")] = False,
    ocsf: Annotated[bool, typer.Option("--ocsf", help="Write the records as OCSF events for a SIEM, too.")] = False,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Export the log, or a part of it, with the proofs that anyone can verify it by.

    With --json: {"folder", "records", "manifests": {folder: digest}, "verifier_key"}.
    """
    from toolmesh_sdk.audit.export.exporter import Selection
    from toolmesh_sdk.audit.export.exporter import export as write_export
    from toolmesh_sdk.audit.remote import RemoteLog

    if shard is not None and (begin or end):
        raise typer.BadParameter("a shard and a range are two different exports", param_hint="--shard")
    first, from_time = _bound(begin, "--from")
    behind, to_time = _bound(end, "--to")
    selection = Selection(shard=shard, first=first, end=behind, from_time=from_time, to_time=to_time)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise typer.BadParameter(f"{out} is not an empty folder", param_hint="--out")
    with open_client(Place(url=url, token=token, state=state, ca=ca), timeout) as client:
        with output.err().status("exporting") as status:
            try:
                done = write_export(
                    RemoteLog(client._transport, timeout),
                    out,
                    selection,
                    parquet=parquet,
                    ocsf=ocsf,
                    progress=lambda count: status.update(f"{count} records"),
                )
            except ValueError as error:
                # The log itself is broken; the verifier says how.
                output.err().print(
                    output.text(f"The log cannot be exported: {error}. `toolmesh audit verify` says more.")
                )
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


def _bound(text: str, hint: str) -> tuple[int | None, datetime | None]:
    """Read a bound: a sequence, or a time, in UTC unless it says otherwise."""
    if not text:
        return None, None
    if text.isdigit():
        return int(text), None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text} is neither a sequence nor a time", param_hint=hint) from None
    return None, moment if moment.tzinfo else moment.replace(tzinfo=UTC)
