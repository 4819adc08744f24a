"""The schema of authz's tables."""

from pathlib import Path

from libs.common.sql.schema import ServiceSchema

SCHEMA = ServiceSchema("authz", Path(__file__).parent, oldest="0008")
