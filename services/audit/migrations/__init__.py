"""The schema of audit's tables."""

from pathlib import Path

from libs.common.sql.schema import ServiceSchema

SCHEMA = ServiceSchema("audit", Path(__file__).parent, oldest="0006")
