"""Runs the revisions beside this file."""

from libs.common.sql.environment import run

run()
