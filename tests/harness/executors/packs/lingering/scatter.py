"""Processes that do everything to outlive their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, NoReturn


def linger(marker: str) -> NoReturn:
    """Never end, and leave children and grandchildren about, deaf to every signal that can be ignored. All of them
    bear the marker."""
    Path("/proc/self/comm").write_text(marker)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    subprocess.Popen([marker, "1000"], executable="/usr/bin/sleep", start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        os.fork()
    while True:
        time.sleep(1)


def never_ends(arguments: dict[str, Any], call: Any) -> NoReturn:
    """The tool."""
    linger(arguments["marker"])
