"""Migrates the schema of executor: `python -m services.executor.migrations`."""

from libs.common.sql.migrate import run_migration
from services.executor.migrations import SCHEMA

if __name__ == "__main__":
    run_migration(SCHEMA)
