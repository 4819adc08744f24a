"""The schema of approval's tables."""

from pathlib import Path

from libs.common.sql.schema import ServiceSchema

SCHEMA = ServiceSchema("approval", Path(__file__).parent, oldest="0004")
