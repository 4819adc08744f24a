"""Runs the executor's migrations on the connection that the service holds."""

from libs.common.sql.environment import run

run()
