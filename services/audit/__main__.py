"""Runs the audit service."""

from libs.common.runtime.process import run
from services.audit.config import Settings
from services.audit.wiring import build

if __name__ == "__main__":
    run("audit", Settings, build)
