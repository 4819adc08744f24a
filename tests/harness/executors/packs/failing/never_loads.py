"""A module that never ends to load, as on a machine without time for it."""

from __future__ import annotations

import time
from typing import Any

time.sleep(3600)


def fine(arguments: dict[str, Any], call: Any) -> dict[str, Any]:
    """The tool, which is never reached."""
    return {}
