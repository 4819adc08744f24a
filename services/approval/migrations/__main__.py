"""Migrates the schema of approval: `python -m services.approval.migrations`."""

from libs.common.sql.migrate import run_migration
from services.approval.migrations import SCHEMA

if __name__ == "__main__":
    run_migration(SCHEMA)
