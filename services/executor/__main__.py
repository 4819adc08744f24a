"""`python -m services.executor`."""

from __future__ import annotations

from libs.common.runtime.process import run
from services.executor.config import Settings
from services.executor.wiring import build

if __name__ == "__main__":
    run("executor", Settings, build)
