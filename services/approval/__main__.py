"""Runs the approval service: `python -m services.approval`."""

from libs.common.runtime.process import run
from services.approval.config import Settings
from services.approval.wiring import build

if __name__ == "__main__":
    run("approval", Settings, build)
