"""Runs the registry: `python -m services.registry`."""

from libs.common.runtime.process import run
from services.registry.config import Settings
from services.registry.wiring import build

if __name__ == "__main__":
    run("registry", Settings, build)
