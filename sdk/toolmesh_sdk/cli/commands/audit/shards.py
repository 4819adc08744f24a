"""`toolmesh audit shards`, `close`, `archive` and `erase`: manage the retention of the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.admin_connection import as_admin
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.audit.v1 import shard_pb2 as pb

    from toolmesh_sdk.audit import VerifierKey
    from toolmesh_sdk.audit.verify.offline.archive_candidates import Archive

_COPY_NOTES = {
    "removed_by_relay": "The relay also removes it from its stream. Exports and copies of readers keep it.",
    "stays": "The Kafka topic keeps its copy until its retention ends: a topic cannot remove one event. Shorten the"
    " topic's retention, and have its readers act on the log.payload.erased event.",
}
SERVICE = "audit"
Reason = Annotated[str, typer.Option("--reason", "-r", help="The reason; recorded in the log.")]


@report_errors
@add_target_options()
def shards(*, target: Target, as_json: bool) -> None:
    """List the shards of the log.

    \b
    Example:
      toolmesh audit shards
    """
    from toolmesh_sdk.audit.remote import RemoteLog

    with as_admin(target, service=SERVICE) as transport:
        _print_shards(RemoteLog(transport).shards(), as_json)


@report_errors
@add_target_options()
def close(
    shard: Annotated[
        int | None, typer.Argument(min=0, help="The number of the shard.", show_default="the open one")
    ] = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Close the open shard and start the next one. A closed shard can be archived.

    \b
    Example:
      toolmesh audit close
    """
    from toolmesh.audit.v1 import log_service_pb2
    from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub

    from toolmesh_sdk.audit.remote import RemoteLog

    with as_admin(target, service=SERVICE) as transport:
        number = RemoteLog(transport).shards()[-1].number if shard is None else shard
        request = log_service_pb2.CloseShardRequest(shard=number)
        stub = LogServiceStub(transport.channel)
        _print_shards([transport.unary(stub.CloseShard, request, None, repeatable=True).shard], as_json)


@report_errors
@add_target_options()
def archive(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An export of closed, complete shards.")],
    drop: Annotated[
        bool, typer.Option("--drop", help="Also drop the records from the database. Only the export remains.")
    ] = False,
    key: options.LogKey = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Record an export as the archive of its shards.

    The export is verified and compared with the shards of the log first. If it does not match, the exit code is 1 and
    nothing is recorded or dropped.

    \b
    Example:
      toolmesh audit archive archive/ --drop
    """
    from toolmesh.audit.v1 import log_service_pb2
    from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub

    from toolmesh_sdk.audit.remote import RemoteLog
    from toolmesh_sdk.cli.commands.audit.verify import read_key

    with as_admin(target, service=SERVICE) as transport:
        log = RemoteLog(transport)
        present = log.shards()
        archives = _find_archives(folder, read_key(key or log.verifier_key(present[-1])), present)
        stub, done = LogServiceStub(transport.channel), []
        for candidate in archives:
            request = log_service_pb2.ArchiveShardRequest(
                shard=candidate.shard, manifest_digest=candidate.digest, drop_records=drop
            )
            done.append(transport.unary(stub.ArchiveShard, request, None, repeatable=True).shard)
    _print_shards(done, as_json)


@report_errors
@add_target_options()
def erase(
    sequence: Annotated[int, typer.Argument(min=0, max=options.MAX_INT64, help="The sequence of the record.")],
    reason: Reason,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Erase the payload of one record.

    Its sequence and hash remain, and a new record states who erased it and why.

    \b
    Example:
      toolmesh audit erase 150 --reason 'asked for'
    """
    from toolmesh.audit.v1 import log_service_pb2
    from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub

    from toolmesh_sdk.cli.views.documents import enum_label

    request = log_service_pb2.ErasePayloadRequest(sequence=sequence, reason=reason)
    with as_admin(target, service=SERVICE) as transport:
        stub = LogServiceStub(transport.channel)
        answer = transport.unary(stub.ErasePayload, request, None, repeatable=True)
    copy = enum_label(log_service_pb2.RelayedCopy.DESCRIPTOR, answer.relayed_copy)
    if as_json:
        output.print_json({"sequence": sequence, "erased_by": answer.erased_by, "relayed_copy": copy})
        return
    output.out().print(output.text(f"record {sequence} is erased", (f"  recorded as {answer.erased_by}", "dim")))
    if copy in _COPY_NOTES:
        output.err().print(_COPY_NOTES[copy])


def _find_archives(folder: Path, key: VerifierKey, present: Sequence[pb.Shard]) -> list[Archive]:
    from toolmesh_sdk.audit.verify.offline.archive_candidates import NotAnArchiveError, find_archives

    try:
        return find_archives(folder, key, present)
    except NotAnArchiveError as error:
        output.err().print(output.text((f"{folder} does not match the log: ", "bold red"), str(error)))
        raise typer.Exit(FAILED) from None


def _print_shards(listed: Sequence[pb.Shard], as_json: bool) -> None:
    from toolmesh.audit.v1 import shard_pb2

    from toolmesh_sdk.cli.views.documents import enum_label, format_time, message_to_dict

    if as_json:
        output.print_json({"shards": [message_to_dict(each) for each in listed]})
        return
    states = shard_pb2.ShardState.DESCRIPTOR
    rows = [
        (
            str(each.number),
            enum_label(states, each.state),
            str(each.first_sequence),
            str(each.tree_size),
            format_time(each.open_time),
            format_time(each.close_time) if each.HasField("close_time") else "",
            each.manifest_digest,
        )
        for each in listed
    ]
    output.print_table(("SHARD", "STATE", "FROM", "RECORDS", "OPENED", "CLOSED", "ARCHIVE"), rows)
