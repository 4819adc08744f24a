"""`toolmesh deploy backup` and `toolmesh deploy restore`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from localmesh.deploy.commands import ExecutorNamespaceOption, NamespaceOption
from localmesh.deploy.layout import Namespaces
from localmesh.exit_codes import FAILED, WRONG_STATE
from localmesh.options import JsonOption, print_outcome

if TYPE_CHECKING:
    from localmesh.cluster_backup.backup_folder import Manifest
    from localmesh.cluster_backup.restore_backup import RestoreOutcome

PassphraseOption = Annotated[Path, typer.Option("--passphrase-file", help="File with 16 characters or more.")]
ServerOption = Annotated[
    str, typer.Option("--postgres", help="PostgreSQL as host:port from here; default: as in its secret.")
]
ContextOption = Annotated[str, typer.Option(help="Context of the kubeconfig; default: the current one.")]


def backup(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that is empty or does not exist.")],
    passphrase_file: PassphraseOption,
    postgres: ServerOption = "",
    namespace: NamespaceOption = "toolmesh",
    executor_namespace: ExecutorNamespaceOption = "toolmesh-executor",
    context: ContextOption = "",
    as_json: JsonOption = False,
) -> None:
    """Back up the database and the keys, encrypted.

    The mesh goes on meanwhile. Not in it: what is in Valkey, volumes, passwords, certificates. The folder and
    the passphrase together are the keys of the mesh; without the passphrase the backup is lost.

    \b
    Example:
      toolmesh deploy backup monday --passphrase-file backup.passphrase --postgres localhost:15432
    """
    from localmesh.cluster_backup.create_backup import create_backup
    from localmesh.cluster_backup.postgres_address import open_postgres
    from localmesh.deploy.secret_store import KubernetesSecrets

    namespaces, started = Namespaces(namespace, executor_namespace), time.monotonic()
    with _failures(as_json):
        store = KubernetesSecrets(context)
        with open_postgres(store, namespaces, postgres) as address:
            manifest = create_backup(folder, _passphrase(passphrase_file), store, namespaces, address)
    size, seconds = sum(file.bytes for file in manifest.files.values()), round(time.monotonic() - started, 1)
    text = f"{folder}: {size / 1e6:.1f} MB in {seconds} s, {_contents(manifest)}"
    document = {"backup": str(folder), "bytes": size, "seconds": seconds, "records": manifest.log.size}
    print_outcome(document, text, as_json=as_json)


def restore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of `toolmesh deploy backup`.")],
    passphrase_file: PassphraseOption,
    postgres: ServerOption = "",
    only: Annotated[
        Literal["secrets", "database"] | None, typer.Option(help="Restore the keys or the database alone.")
    ] = None,
    keep_signing_keys: Annotated[
        bool, typer.Option("--keep-signing-keys", help="Accept tokens from before, also those revoked since.")
    ] = False,
    namespace: NamespaceOption = "toolmesh",
    executor_namespace: ExecutorNamespaceOption = "toolmesh-executor",
    context: ContextOption = "",
    as_json: JsonOption = False,
) -> None:
    """Restore a backup into a cluster without services.

    Replaces nothing: the database must be empty or missing, and secrets that exist must hold the keys of the backup.
    It may be interrupted and run again. Revocations and used approvals since the backup are lost, so tokens from before
    are refused and open approvals end; --keep-signing-keys accepts those tokens.

    \b
    Examples:
      toolmesh deploy restore monday --passphrase-file backup.passphrase --only secrets
      toolmesh deploy restore monday --passphrase-file backup.passphrase --postgres localhost:15432
    """
    from localmesh.cluster_backup.backup_folder import BackupReader
    from localmesh.cluster_backup.restore_backup import ALL_PARTS, Part, restore_backup
    from localmesh.deploy.secret_store import KubernetesSecrets

    started = time.monotonic()
    with _failures(as_json):
        reader = BackupReader(folder, _passphrase(passphrase_file))
        outcome = restore_backup(
            reader,
            KubernetesSecrets(context),
            Namespaces(namespace, executor_namespace),
            parts=frozenset({Part(only)}) if only else ALL_PARTS,
            server=postgres,
            keep_signing_keys=keep_signing_keys,
        )
    seconds = round(time.monotonic() - started, 1)
    document = {
        "restored": str(folder),
        "secrets": list(outcome.secrets),
        "database": outcome.database,
        "tokens_refused": outcome.tokens_refused,
        "create_time": reader.manifest.create_time,
        "seconds": seconds,
    }
    print_outcome(document, _summary(outcome, reader.manifest, seconds), as_json=as_json)


def _summary(outcome: RestoreOutcome, manifest: Manifest, seconds: float) -> str:
    lines = [
        f"secrets created: {', '.join(outcome.secrets) or 'none'}",
        f"database: restored as of {manifest.create_time}, {_contents(manifest)}"
        if outcome.database
        else "database: not changed",
    ]
    if outcome.tokens_refused:
        lines.append("tokens from before are refused: a new key signs")
    return "\n".join([*lines, f"{seconds} s"])


def _contents(manifest: Manifest) -> str:
    log = manifest.log
    signed = (
        f"signed up to {log.checkpoint_size} of shard {log.checkpoint_shard}" if log.checkpoint_size else "unsigned"
    )
    return f"{log.size} records of the log, {signed}"


def _passphrase(file: Path) -> bytes:
    return file.read_bytes().strip()


@contextmanager
def _failures(as_json: bool) -> Iterator[None]:
    from localmesh.cluster_backup.errors import BackupError, TargetError
    from localmesh.deploy.api_failures import ClusterUnreachableError, explain_failures
    from localmesh.wheels import ProgramError

    try:
        with explain_failures():
            yield
    except (BackupError, ClusterUnreachableError, ProgramError, OSError) as error:
        print_outcome({"error": str(error)}, str(error), as_json=as_json)
        raise typer.Exit(WRONG_STATE if isinstance(error, TargetError) else FAILED) from error
