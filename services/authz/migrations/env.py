"""Runs the revisions of this service."""

from libs.common.sql.environment import run

run()
