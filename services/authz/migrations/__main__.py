"""Migrates the schema of authz: `python -m services.authz.migrations`."""

from libs.common.sql.migrate import run_migration
from services.authz.migrations import SCHEMA

if __name__ == "__main__":
    run_migration(SCHEMA)
