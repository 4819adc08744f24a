"""Entry of Alembic for the registry's schema."""

from libs.common.sql.environment import run

run()
