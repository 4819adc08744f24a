"""`toolmesh audit verify`: verifies an export, or the log of a running mesh."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from toolmesh_sdk.cli.failures import print_error, report_unexpected
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.contexts import config_folder
from toolmesh_sdk.cli.inputs.options import refuse_blank
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh_sdk.audit import Finding, Note, Report, VerifierKey

Parameters = ParamSpec("Parameters")
_CANNOT_VERIFY = 2
_SHOWN = 10


def _keep_exit_one_for_tampering(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Reserve exit code 1 for tampering: any other failure, such as a full disk, exits with 2."""

    @wraps(command)
    def run(*arguments: Parameters.args, **options: Parameters.kwargs) -> None:
        try:
            command(*arguments, **options)
        except (typer.Exit, typer.BadParameter):
            raise
        except Exception as error:
            report_unexpected(error)
            raise typer.Exit(_CANNOT_VERIFY) from None

    return run


@_keep_exit_one_for_tampering
@add_target_options()
def verify(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="An export; default: the log of a running mesh.")
    ] = None,
    key: options.LogKey = None,
    checkpoint: Annotated[
        list[Path] | None, typer.Option("--checkpoint", help="A file with an earlier checkpoint; repeatable.")
    ] = None,
    witness: Annotated[
        str | None,
        typer.Option(
            callback=refuse_blank,
            help="The key of a witness that must have co-signed, or a file that holds it; for an export.",
            show_default=False,
        ),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Require whole shards, starting with the first if several; for an export.")
    ] = False,
    sample: Annotated[
        int, typer.Option(min=0, help="Check this many records of each shard instead of all; for a running mesh.")
    ] = 0,
    pinned: Annotated[
        Path | None,
        typer.Option("--pinned", help="The file that pins the key and checkpoints between runs; for a running mesh."),
    ] = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Verify an export, or the log of a running mesh.

    An export is verified offline, with only the log's key. Exit codes: 0 verified, 1 tampered with, 2 cannot be
    verified.

    \b
    Examples:
      toolmesh audit verify
      toolmesh audit verify ./export --key log.vkey
    """
    notes = [_read_note(path) for path in checkpoint or []]
    if folder is not None:
        from toolmesh_sdk.audit import verify_export

        if not key:
            raise typer.BadParameter("an export needs the log's key", param_hint="--key")
        cosigner = _read_witness(witness) if witness else None
        report = verify_export(folder, read_key(key), notes, cosigner, whole=whole)
    elif witness:
        # A running log signs on request, so its newest checkpoint has no witness signature yet.
        raise typer.BadParameter("witness signatures are part of an export; give a folder", param_hint="--witness")
    else:
        try:
            report = _verify_online(
                target, pinned or pinned_file(target), read_key(key) if key else None, notes, sample
            )
        except ToolmeshError as error:
            print_error(error, as_json=as_json)
            raise typer.Exit(_CANNOT_VERIFY) from None
    _print_tolerantly(report, as_json=as_json)
    raise typer.Exit(report.exit_code)


def _print_tolerantly(report: Report, *, as_json: bool) -> None:
    """Print the report. A reader that stops early, such as `head`, does not change the exit code."""
    try:
        if as_json:
            output.print_json(report.to_dict(), flush=True)
        else:
            _print_report(report)
            sys.stdout.flush()
    except OSError as error:
        _discard_stdout()
        if not isinstance(error, BrokenPipeError):
            raise
    except SystemExit:
        # Rich raises it when stdout is closed.
        _discard_stdout()


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null: flushing it again at exit would fail and change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _verify_online(target: Target, path: Path, key: VerifierKey | None, notes: list[Note], sample: int) -> Report:
    from toolmesh_sdk.audit.remote import RemoteLog
    from toolmesh_sdk.audit.verify.online.online_check import OnlineCheck
    from toolmesh_sdk.audit.verify.online.pinned_state import PinnedState, load, save

    try:
        pinned = load(path)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--pinned") from None
    with open_client(target) as client, output.err().status("verifying") as status:
        log = RemoteLog(client.transport, target.timeout)
        check = OnlineCheck(
            log, pinned, key, known=notes, sample=sample, progress=lambda n: status.update(f"{n} records")
        )
        report = check.run()
    if report.exit_code == 0 and check.key is not None:
        try:
            save(path, PinnedState(check.key.text, {**pinned.notes, **check.newest}))
        except OSError as error:
            report.problems.append(f"{path} cannot be written, so the next run cannot compare with this one: {error}")
    return report


def pinned_file(target: Target) -> Path:
    """Return the file of a mesh: of the local one in its state folder, which `toolmesh reset` deletes, and of others in
    the user's configuration folder."""
    if target.is_local():
        return target.folder / "verifier.json"
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", target.url.rpartition("://")[2])
    return config_folder() / "verifier" / f"{name}.json"


def read_key(text: str) -> VerifierKey:
    """Parse a verifier key, or read it from a file."""
    from toolmesh_sdk.audit.format.notes import ED25519

    return _parse_key(text, ED25519, "--key")


def _read_witness(text: str) -> VerifierKey:
    from toolmesh_sdk.audit.format.notes import COSIGNATURE_V1

    return _parse_key(text, COSIGNATURE_V1, "--witness")


def _parse_key(text: str, kind: int, hint: str) -> VerifierKey:
    from toolmesh_sdk.audit import UnreadableNoteError, VerifierKey

    try:
        # A verifier key contains a plus; a path with one is unlikely.
        content = Path(text).read_text() if "+" not in text else text
        return VerifierKey.parse(content, kind)
    except (OSError, UnreadableNoteError, UnicodeDecodeError) as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None


def _read_note(path: Path) -> Note:
    from toolmesh_sdk.audit import Note, UnreadableNoteError

    try:
        return Note.parse(path.read_text())
    except (OSError, UnreadableNoteError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--checkpoint") from None


def _print_report(report: Report) -> None:
    console = output.out()
    verdict, style = {0: ("verified", "bold green"), 1: ("TAMPERED", "bold red"), 2: ("cannot verify", "bold yellow")}[
        report.exit_code
    ]
    console.print(output.text((verdict, style), f"  {report.subject}"))
    ordered = sorted(report.findings, key=lambda finding: finding.order())
    for finding in ordered[:_SHOWN]:
        console.print(_format_finding(finding))
    if len(ordered) > _SHOWN:
        console.print(output.text((f"  and {len(ordered) - _SHOWN} more; use --json to see all", "dim")))
    for problem in report.problems:
        console.print(output.text((f"  {problem}", "yellow")))
    for shard in report.shards:
        checked = "sampled" if shard.sampled else "records"
        console.print(
            output.text(
                f"  shard {shard.number}: {shard.records} {checked}, "
                f"sequences {shard.first_sequence} to {shard.end_sequence - 1}",
                (f", {shard.erased} erased" if shard.erased else "", "yellow"),
                (f"  checkpoint {shard.tree_size} {shard.root_hash[:16]}", "dim"),
            )
        )
    for remark in report.remarks:
        console.print(output.text((f"  note: {remark}", "dim")))
    if report.key_id:
        console.print(output.text((f"  key {report.key_id}", "dim")))


def _format_finding(finding: Finding) -> object:
    where = f" at {finding.location}" if finding.location else ""
    return output.text((f"  {finding.kind.value}{where}", "red"), f": {finding.detail}")
