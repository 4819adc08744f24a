"""`toolmesh audit verify`: whether the evidence is still what was signed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from toolmesh_sdk.cli.failures import report as report_failure
from toolmesh_sdk.cli.failures import report_unforeseen
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.bounds import said
from toolmesh_sdk.cli.inputs.target import Place, open_client
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh_sdk.audit import Finding, Note, Report, VerifierKey

Parameters = ParamSpec("Parameters")
_CANNOT_VERIFY = 2
_SHOWN = 10


def _accusing_nobody(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Keep exit code 1 for evidence of tampering: whatever else goes wrong, such as a full disk, is no verdict about the log."""

    @wraps(command)
    def run(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        try:
            command(*arguments, **options)
        except (typer.Exit, typer.BadParameter):
            raise
        except Exception as error:
            report_unforeseen(error)
            raise typer.Exit(_CANNOT_VERIFY) from None

    return run


@_accusing_nobody
def verify(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="An export; without one, the log of a running mesh.")
    ] = None,
    key: options.LogKey = None,
    checkpoint: Annotated[
        list[Path] | None, typer.Option("--checkpoint", help="A checkpoint that you kept, as a file; may be repeated.")
    ] = None,
    witness: Annotated[
        str | None,
        typer.Option(
            callback=said,
            help="The key of a witness that must have co-signed, or a file that holds it; for an export.",
            show_default=False,
        ),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Demand whole shards, and from the first on if several; for an export.")
    ] = False,
    sample: Annotated[
        int, typer.Option(min=0, help="Look at so many records of each shard instead of all; for a running mesh.")
    ] = 0,
    kept: Annotated[
        Path | None, typer.Option(help="Where key and checkpoints are kept for the next time; for a running mesh.")
    ] = None,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Verify an export with nothing but the key, or the log of a running mesh.

    Exit codes: 0 verified, 1 tampered with, 2 cannot be verified.
    """
    notes = [_note(path) for path in checkpoint or []]
    if folder is not None:
        from toolmesh_sdk.audit import verify_export

        if not key:
            raise typer.BadParameter("an export is verified with the log's key", param_hint="--key")
        cosigner = _witness_from(witness) if witness else None
        report = verify_export(folder, key_from(key), notes, cosigner, whole=whole)
    elif witness:
        # A running log signs for whoever asks, so what it shows has no witness yet; that must not pass for a demand that was met.
        raise typer.BadParameter("witnesses have signed what was exported; give a folder", param_hint="--witness")
    else:
        place = Place(url=url, token=token, state=state, ca=ca)
        try:
            report = _online(place, timeout, kept or _kept_file(place), key_from(key) if key else None, notes, sample)
        except ToolmeshError as error:
            report_failure(error, as_json=as_json)
            raise typer.Exit(_CANNOT_VERIFY) from None
    _print(report, as_json=as_json)
    raise typer.Exit(report.exit_code)


def _print(report: Report, *, as_json: bool) -> None:
    """Print the report. Whoever stops reading it, as `head` does, changes nothing about the verdict."""
    try:
        if as_json:
            output.print_json(report.to_dict(), flush=True)
        else:
            _show(report)
            sys.stdout.flush()
    except OSError as error:
        _forget_what_is_buffered()
        if not isinstance(error, BrokenPipeError):
            raise
    except SystemExit:
        # How Rich says that nobody reads.
        _forget_what_is_buffered()


def _forget_what_is_buffered() -> None:
    """When the program ends it would be written once more, and the failure of that would take the place of the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _online(
    place: Place, timeout: float, path: Path, key: VerifierKey | None, notes: list[Note], sample: int
) -> Report:
    from toolmesh_sdk.audit.remote import RemoteLog
    from toolmesh_sdk.audit.verify.online import OnlineCheck
    from toolmesh_sdk.audit.verify.pinned_state import Kept, load, save

    try:
        remembered = load(path)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--kept") from None
    with open_client(place, timeout) as client, output.err().status("verifying") as status:
        log = RemoteLog(client._transport, timeout)
        check = OnlineCheck(
            log, remembered, key, known=notes, sample=sample, progress=lambda n: status.update(f"{n} records")
        )
        report = check.run()
    if report.exit_code == 0 and check.key is not None:
        try:
            save(path, Kept(check.key.text, {**remembered.notes, **check.newest}))
        except OSError as error:
            report.problems.append(f"{path} cannot be written, so the next time has nothing to compare with: {error}")
    return report


def _kept_file(place: Place) -> Path:
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", place.url.rpartition("://")[2]) or "local"
    return place.folder / f"verifier-{name}.json"


def key_from(text: str) -> VerifierKey:
    """Read a verifier key, or the file that holds it."""
    from toolmesh_sdk.audit.format.notes import ED25519

    return _key(text, ED25519, "--key")


def _witness_from(text: str) -> VerifierKey:
    from toolmesh_sdk.audit.format.notes import COSIGNATURE_V1

    return _key(text, COSIGNATURE_V1, "--witness")


def _key(text: str, kind: int, hint: str) -> VerifierKey:
    from toolmesh_sdk.audit import UnreadableNoteError, VerifierKey

    try:
        # A key is no path: it has a plus where a path would have to be very odd.
        content = Path(text).read_text() if "+" not in text else text
        return VerifierKey.parse(content, kind)
    except (OSError, UnreadableNoteError, UnicodeDecodeError) as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None


def _note(path: Path) -> Note:
    from toolmesh_sdk.audit import Note, UnreadableNoteError

    try:
        return Note.parse(path.read_text())
    except (OSError, UnreadableNoteError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--checkpoint") from None


def _show(report: Report) -> None:
    console = output.out()
    word, style = {0: ("verified", "bold green"), 1: ("TAMPERED", "bold red"), 2: ("cannot verify", "bold yellow")}[
        report.exit_code
    ]
    console.print(output.text((word, style), f"  {report.subject}"))
    ordered = sorted(report.findings, key=lambda finding: finding.order())
    for finding in ordered[:_SHOWN]:
        console.print(_line(finding))
    if len(ordered) > _SHOWN:
        console.print(output.text((f"  and {len(ordered) - _SHOWN} more; --json shows all", "dim")))
    for problem in report.problems:
        console.print(output.text((f"  {problem}", "yellow")))
    for shard in report.shards:
        looked = "sampled" if shard.sampled else "records"
        console.print(
            output.text(
                f"  shard {shard.number}: {shard.records} {looked}, sequences {shard.first_sequence} to {shard.end_sequence - 1}",
                (f", {shard.erased} erased" if shard.erased else "", "yellow"),
                (f"  checkpoint {shard.tree_size} {shard.root_hash[:16]}", "dim"),
            )
        )
    for remark in report.remarks:
        console.print(output.text((f"  note: {remark}", "dim")))
    if report.key_id:
        console.print(output.text((f"  key {report.key_id}", "dim")))


def _line(finding: Finding) -> object:
    where = f" at {finding.place}" if finding.place else ""
    return output.text((f"  {finding.kind.value}{where}", "red"), f": {finding.detail}")
