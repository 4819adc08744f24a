"""The schema of executor's tables."""

from pathlib import Path

from libs.common.sql.schema import ServiceSchema

SCHEMA = ServiceSchema("executor", Path(__file__).parent, oldest="0012")
