"""Migrates the schema of registry: `python -m services.registry.migrations`."""

from libs.common.sql.migrate import run_migration
from services.registry.migrations import SCHEMA

if __name__ == "__main__":
    run_migration(SCHEMA)
