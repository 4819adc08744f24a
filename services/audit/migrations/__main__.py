"""Migrates the schema of audit: `python -m services.audit.migrations`."""

from libs.common.sql.migrate import run_migration
from services.audit.migrations import SCHEMA

if __name__ == "__main__":
    run_migration(SCHEMA)
