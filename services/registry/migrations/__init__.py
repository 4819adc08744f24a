"""The schema of registry's tables."""

from pathlib import Path

from libs.common.sql.schema import ServiceSchema

SCHEMA = ServiceSchema("registry", Path(__file__).parent, oldest="0012")
