"""Precompiles the modules of every service with the flags they run with (LEAN in localmesh/settings.py)."""

from __future__ import annotations

import os
import subprocess
import sys

from localmesh.composition import SERVICES
from localmesh.settings import LEAN

# What a service imports only once it starts.
_LATER = ("sqlalchemy.dialects.postgresql.psycopg", "redis.asyncio", "alembic.command", "alembic.config")


def main() -> None:
    """Import every service in a process that writes bytecode."""
    modules = [
        *_LATER,
        "localmesh.migrate",
        *(f"services.{name}.{module}" for name in SERVICES for module in ("wiring", "__main__")),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    imports = "; ".join(f"import {module}" for module in modules)
    subprocess.run([sys.executable, *LEAN, "-c", imports], env=environment, check=True)


if __name__ == "__main__":
    main()
