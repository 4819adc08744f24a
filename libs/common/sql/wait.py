"""Waits for the schema of a service: `python -m services.<name>.migrations wait`, before the service starts in a pod.

It has the service's own role, never the owner's. A pod that waits is shown as such, where a service that ends and is
started again would be delayed for longer and longer.
"""

from __future__ import annotations

import asyncio
import sys

from pydantic import Field

from libs.common.runtime.setting_types import PostgresUrl
from libs.common.runtime.settings import EnvironmentSettings, SettingsError, load
from libs.common.sql.engine import engine_for
from libs.common.sql.schema import SchemaError, SchemaProblem, ServiceSchema, check_schema

PAUSE_SECONDS = 1.0


class WaitSettings(EnvironmentSettings):
    """The settings of the wait."""

    database_url: PostgresUrl = Field(description="Database URL of the service's own role.")


def run_wait(schema: ServiceSchema) -> None:
    """Wait and exit: with 0 once the schema is that of this build, 1 if it is newer, 2 for wrong settings."""
    try:
        settings = load(WaitSettings)
    except SettingsError as error:
        sys.stderr.writelines(f"{schema.name} migrations: {problem}\n" for problem in error.problems)
        sys.exit(2)
    try:
        asyncio.run(wait_for_schema(settings.database_url, schema))
    except SchemaError as error:
        sys.stderr.write(f"{schema.name} migrations: {error}\n")
        sys.exit(1)


async def wait_for_schema(url: str, schema: ServiceSchema, pause: float = PAUSE_SECONDS) -> None:
    """Return once the database has the schema of this build. Raises SchemaError if it is newer than the build."""
    reported = None
    while True:
        engine = engine_for(url, schema=schema.name, size=1)
        try:
            return await check_schema(engine, schema)
        except SchemaError as error:
            if error.problem is SchemaProblem.NEWER_THAN_BUILD:
                raise
            if error.problem is not reported:
                sys.stdout.write(f"{schema.name} migrations: waiting: {error}\n")
                sys.stdout.flush()
                reported = error.problem
        finally:
            await engine.dispose()
        await asyncio.sleep(pause)
