"""Runs authz: `python -m services.authz`."""

from libs.common.runtime.process import run
from services.authz.config import Settings
from services.authz.wiring import build

if __name__ == "__main__":
    run("authz", Settings, build)
