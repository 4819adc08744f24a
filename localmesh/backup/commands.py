"""`toolmesh backup` and `toolmesh restore`: the database, the keys and the volumes of a local mesh in one file."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from localmesh.exit_codes import FAILED, WRONG_STATE
from localmesh.options import JsonOption, StateOption, print_outcome
from localmesh.settings import state_path
from localmesh.state.state import State, StateError, open_state, runner_pid, take_lock

WARNING = (
    "It holds the private keys and passwords of the mesh: keep it like them. A database without its keys accepts no "
    "token it issued, opens no stored result and signs no checkpoint that verifiers know."
)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, such as mesh.tar.gz.")],
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Back up the database, the keys and the volumes.

    Works while the mesh runs, and while it does not. Volumes of your own (TOOLMESH_VOLUMES) and the counters of rate
    limits are not in it. The file holds private keys.

    \b
    Example:
      toolmesh backup mesh.tar.gz
    """
    from localmesh.backup.archive import write_archive
    from localmesh.backup.database import dump_database

    place, target = State(state_path(state)), file.expanduser().absolute()
    if not place.marker.exists():
        print_outcome({"backup": None, "state": str(place.path)}, f"{place.path} holds no mesh", as_json=as_json)
        raise typer.Exit(WRONG_STATE)
    with _failures(as_json), _unless_running(place), tempfile.TemporaryDirectory(dir=target.parent) as folder:
        dump = Path(folder) / "database.dump"
        asyncio.run(dump_database(place, dump))
        manifest = write_archive(target, dump, place.secrets, place.path / "volumes")
    size = target.stat().st_size
    text = f"{target}: {size / 1e6:.1f} MB, {_contents(manifest)}.\n{WARNING}"
    print_outcome({"backup": str(target), "bytes": size, "files": len(manifest["files"])}, text, as_json=as_json)


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `toolmesh backup`.")],
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup into an empty state folder.

    Tokens, keys, stored results and the log's checkpoints are valid again as of the backup. What came after it is gone:
    a verifier that has pinned a later checkpoint says so.

    \b
    Examples:
      toolmesh restore mesh.tar.gz
      toolmesh restore mesh.tar.gz --state /srv/toolmesh
    """
    place = State(state_path(state))
    if place.path.exists() and any(place.path.iterdir()):
        text = f"{place.path} is not empty; `toolmesh reset` empties it, --state names another folder"
        print_outcome({"restored": None, "state": str(place.path)}, text, as_json=as_json)
        raise typer.Exit(WRONG_STATE)
    with _failures(as_json):
        manifest = _restore(file.expanduser().absolute(), place)
    text = f"Restored the backup of {manifest['created']}: {_contents(manifest)}.\n`toolmesh up` starts the mesh."
    print_outcome(
        {"restored": str(file), "created": manifest["created"], "state": str(place.path)}, text, as_json=as_json
    )


def _restore(file: Path, state: State) -> dict[str, Any]:
    from localmesh.backup.archive import DATABASE, SECRETS, VOLUMES, extract_archive
    from localmesh.backup.database import restore_database
    from localmesh.state.clear import clear_state
    from localmesh.state.keys import ensure_secrets

    open_state(state.path)
    lock = take_lock(state)
    try:
        draft = state.path / "restore.draft"
        draft.mkdir(mode=0o700)
        manifest = extract_archive(file, draft)
        state.secrets.rmdir()
        (draft / SECRETS).rename(state.secrets)
        ensure_secrets(state)
        if (draft / VOLUMES).exists():
            (draft / VOLUMES).rename(state.path / "volumes")
        asyncio.run(restore_database(state, draft / DATABASE))
        shutil.rmtree(draft)
    except BaseException:
        # A half-restored mesh must not start.
        clear_state(state)
        raise
    finally:
        if lock is not None:
            lock.release()
    return manifest


@contextmanager
def _unless_running(state: State) -> Iterator[None]:
    """Holds the lock of a mesh that does not run, so that none starts meanwhile."""
    lock = None if runner_pid(state) is not None else take_lock(state)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


@contextmanager
def _failures(as_json: bool) -> Iterator[None]:
    from localmesh.backup.archive import ArchiveError
    from localmesh.process.part import PartError
    from localmesh.wheels import ProgramError

    try:
        yield
    except (ArchiveError, PartError, ProgramError, StateError, OSError) as error:
        print_outcome({"error": str(error)}, str(error), as_json=as_json)
        raise typer.Exit(FAILED) from error


def _contents(manifest: dict[str, Any]) -> str:
    names = manifest["files"]
    keys, files = (sum(name.startswith(prefix) for name in names) for prefix in ("secrets/", "volumes/"))
    return f"the database, {keys} keys and passwords, {files} files of volumes"
