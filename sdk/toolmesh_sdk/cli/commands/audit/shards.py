"""`toolmesh audit shards`, `close`, `archive` and `erase`: how long the log keeps what, as its operator decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.admin_connection import as_steward
from toolmesh_sdk.cli.inputs.target import Place
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.audit.v1 import shard_pb2 as pb

    from toolmesh_sdk.audit import VerifierKey
    from toolmesh_sdk.audit.export.archive_candidates import Archive

SERVICE = "audit"
Why = Annotated[str, typer.Option("--reason", "-r", help="Why, for those who read the log.")]


@reported
def shards(
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """List the shards that the log is cut into."""
    from toolmesh_sdk.audit.remote import RemoteLog

    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service=SERVICE) as transport:
        _print_shards(RemoteLog(transport).shards(), as_json)


@reported
def close(
    shard: Annotated[int | None, typer.Argument(min=0, help="Its number.", show_default="the open one")] = None,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Close the open shard and go on in the next one; what is closed can be archived."""
    from toolmesh.audit.v1 import log_service_pb2
    from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub

    from toolmesh_sdk.audit.remote import RemoteLog

    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service=SERVICE) as transport:
        number = RemoteLog(transport).shards()[-1].number if shard is None else shard
        request = log_service_pb2.CloseShardRequest(shard=number)
        stub = LogServiceStub(transport.channel)
        _print_shards([transport.unary(stub.CloseShard, request, None, repeatable=True).shard], as_json)


@reported
def archive(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An export of closed shards, each of them whole.")],
    drop: Annotated[
        bool, typer.Option("--drop", help="Drop the records from the database, too; the export is then all there is.")
    ] = False,
    key: options.LogKey = None,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Note in the log that an export is the archive of the shards it holds.

    The export is verified first, and compared with the shards of the log: what is noted, and what is dropped, is
    what the folder really holds. Exit code 1, and nothing noted, if it is not.
    """
    from toolmesh.audit.v1 import log_service_pb2
    from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub

    from toolmesh_sdk.audit.remote import RemoteLog
    from toolmesh_sdk.cli.commands.audit.verify import key_from

    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service=SERVICE) as transport:
        log = RemoteLog(transport)
        present = log.shards()
        found = _archives(folder, key_from(key or log.verifier_key(present[-1])), present)
        stub, done = LogServiceStub(transport.channel), []
        for each in found:
            request = log_service_pb2.ArchiveShardRequest(
                shard=each.shard, manifest_digest=each.digest, drop_records=drop
            )
            done.append(transport.unary(stub.ArchiveShard, request, None, repeatable=True).shard)
    _print_shards(done, as_json)


@reported
def erase(
    sequence: Annotated[int, typer.Argument(min=0, max=options.MOST, help="The record's place in the log.")],
    reason: Why,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Erase what one record says; its place and hash stay, and the log says who erased it and why."""
    from toolmesh.audit.v1 import log_service_pb2
    from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub

    request = log_service_pb2.ErasePayloadRequest(sequence=sequence, reason=reason)
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service=SERVICE) as transport:
        stub = LogServiceStub(transport.channel)
        erased_by = transport.unary(stub.ErasePayload, request, None, repeatable=True).erased_by
    if as_json:
        output.print_json({"sequence": sequence, "erased_by": erased_by})
    else:
        output.out().print(output.text(f"record {sequence} is erased", (f"  record {erased_by} says so", "dim")))


def _archives(folder: Path, key: VerifierKey, present: Sequence[pb.Shard]) -> list[Archive]:
    from toolmesh_sdk.audit.export.archive_candidates import NotAnArchiveError, archives_in

    try:
        return archives_in(folder, key, present)
    except NotAnArchiveError as error:
        output.err().print(output.text((f"{folder} is not what the log holds: ", "bold red"), str(error)))
        raise typer.Exit(FAILED) from None


def _print_shards(found: Sequence[pb.Shard], as_json: bool) -> None:
    from toolmesh.audit.v1 import shard_pb2

    from toolmesh_sdk.cli.views.documents import document, moment, word

    if as_json:
        output.print_json({"shards": [document(each) for each in found]})
        return
    states = shard_pb2.ShardState.DESCRIPTOR
    rows = [
        (
            str(each.number),
            word(states, each.state),
            str(each.first_sequence),
            str(each.tree_size),
            moment(each.open_time),
            moment(each.close_time) if each.HasField("close_time") else "",
            each.manifest_digest,
        )
        for each in found
    ]
    output.print_table(("SHARD", "STATE", "FROM", "RECORDS", "OPENED", "CLOSED", "ARCHIVE"), rows)
