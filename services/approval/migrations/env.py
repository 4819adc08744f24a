"""Runs the revisions of the approval service."""

from libs.common.sql.environment import run

run()
