"""The files of a PostgreSQL cluster: their folder, owner and creation."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from localmesh.process.child import Finished, Launch, RunAs, run_to_end, user_namespaces_work
from localmesh.process.orphans import wait_until_gone
from localmesh.process.part import PartError
from localmesh.settings import LOOPBACK, inherited_environment
from localmesh.state.files import write_private
from localmesh.state.secrets import DATABASE_OWNER, DATABASE_ROLES, SCHEMA_OWNERS

INITDB_OPTIONS = ("-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8", "--no-instructions")


@dataclass(frozen=True)
class PostgresPlan:
    """The folder and the user of a PostgreSQL server."""

    programs: Path
    folder: Path
    port: int
    passwords: dict[str, str] = field(repr=False)
    run_as: RunAs = RunAs.OURSELVES
    roles: tuple[str, ...] = (*DATABASE_ROLES, *SCHEMA_OWNERS.values())
    address: str = LOOPBACK
    clients: str = f"{LOOPBACK}/32"
    """The network that roles may connect from."""

    @property
    def cluster(self) -> Path:
        return self.folder / "cluster"


def choose_user() -> RunAs:
    """Chooses the server's user: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return RunAs.OURSELVES
    return RunAs.NAMESPACED_NOBODY if user_namespaces_work() else RunAs.NOBODY


def choose_folder(state: Path, run_as: RunAs) -> Path:
    """Returns the cluster's folder: inside the state folder, or one that the user `nobody` can reach."""
    if run_as is not RunAs.NOBODY:
        return state / "postgres"
    return Path("/var/tmp") / f"toolmesh-{hashlib.sha256(str(state).encode()).hexdigest()[:16]}"  # noqa: S108  (ownership is checked before use)


async def ensure_cluster(plan: PostgresPlan) -> None:
    """Creates the cluster if there is none: in a temporary folder, then renamed, so that a partial one is never
    used."""
    if plan.cluster.exists():
        return
    _ensure_folder(plan)
    draft = plan.folder / "cluster.draft"
    shutil.rmtree(draft, ignore_errors=True)
    password_file = plan.folder / "owner-password"
    write_owned(plan, password_file, plan.passwords[DATABASE_OWNER])
    arguments = ("-D", str(draft), "-U", DATABASE_OWNER, f"--pwfile={password_file}", *INITDB_OPTIONS)
    initdb = Launch((str(plan.programs / "initdb"), *arguments), Path("/"), inherited_environment(), run_as=plan.run_as)
    try:
        require_success("initdb", await run_to_end(initdb, seconds=120))
    finally:
        password_file.unlink()
    draft.rename(plan.cluster)


async def clear_stale_lock(plan: PostgresPlan) -> None:
    """Removes the lock file of a server that was killed, after waiting for one that is still ending.

    PostgreSQL trusts the file if any process of our user has its pid, and pids are reused.
    """
    lock = plan.cluster / "postmaster.pid"
    with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
        pid = int(lock.read_text().splitlines()[0])
        if not _serves(pid, plan.cluster) or await wait_until_gone([pid], seconds=10):
            lock.unlink()


def write_owned(plan: PostgresPlan, path: Path, text: str) -> None:
    """Writes a file that only the server's user can read."""
    write_private(path, text.encode())
    _give_away(plan, path)


def require_success(step: str, finished: Finished) -> None:
    """Raises PartError with the end of the program's output unless it succeeded."""
    if finished.code != 0:
        raise PartError("postgres", f"{step} failed: {finished.output.strip()[-600:]}")


def _ensure_folder(plan: PostgresPlan) -> None:
    with contextlib.suppress(FileExistsError):
        plan.folder.mkdir(mode=0o700)
        _give_away(plan, plan.folder)
    # /var/tmp is shared: an existing folder must belong to the server's user.
    status = plan.folder.lstat()
    owner = pwd.getpwnam("nobody").pw_uid if plan.run_as is RunAs.NOBODY else os.geteuid()
    if plan.folder.is_symlink() or status.st_uid != owner or status.st_mode & 0o077:
        raise PartError("postgres", f"{plan.folder} belongs to another user")


def _give_away(plan: PostgresPlan, path: Path) -> None:
    if plan.run_as is RunAs.NOBODY:
        entry = pwd.getpwnam("nobody")
        os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)


def _serves(pid: int, cluster: Path) -> bool:
    # A server's working directory is its cluster.
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cwd").readlink() == cluster.resolve()
    return False
