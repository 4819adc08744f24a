"""Runs the gateway: `python -m services.gateway`."""

from libs.common.runtime.process import run
from services.gateway.config import Settings
from services.gateway.wiring import build

if __name__ == "__main__":
    run("gateway", Settings, build)
