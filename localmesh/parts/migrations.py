"""Migrates the schemas of all services in one process: each has its own role, and the libraries are loaded once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping

from localmesh.process.child import Launch, describe_exit, run_to_end
from localmesh.process.part import PartError
from localmesh.settings import LEAN, ROOT, inherited_environment

# A large table may take long; a mesh that waits longer than this says so.
SECONDS = 600.0


class Migrations:
    """Runs `python -m localmesh.migrate` once, for the first service that needs its schema."""

    def __init__(self, owner_urls: Mapping[str, str]) -> None:
        """`owner_urls` are the database URLs of the roles that own the schemas, by service."""
        self._owner_urls = dict(owner_urls)
        self._run: asyncio.Task[Mapping[str, str]] | None = None

    async def finish(self, service: str) -> None:
        """Returns when the schema of the service is migrated. Raises PartError with the reason why it is not."""
        if service not in self._owner_urls:
            return
        if self._run is None:
            self._run = asyncio.create_task(self._migrate())
        problems = await asyncio.shield(self._run)
        if problem := problems.get(service):
            raise PartError(service, problem)

    async def _migrate(self) -> Mapping[str, str]:
        """Returns the problem of each service whose schema could not be migrated."""
        command = (sys.executable, *LEAN, "-m", "localmesh.migrate")
        launch = Launch(command, ROOT, inherited_environment())
        # Passwords go through the standard input: other users can read arguments.
        finished = await run_to_end(launch, stdin=json.dumps(self._owner_urls), seconds=SECONDS)
        lines = finished.output.strip().splitlines()
        if finished.code:
            reason = lines[-1] if lines else f"migrations: {describe_exit(finished.code)}"
            return dict.fromkeys(self._owner_urls, reason)
        problems: Mapping[str, str] = json.loads(lines[-1])
        return problems
