"""Keeps the node's components running, and reaps every orphan, as the first process of a pid namespace must."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from deploy.cluster.node.components import Component

RESTART_SECONDS = 1.0
_PAUSE_SECONDS = 0.1


class Supervisor:
    """Starts components, each with a log of its own, and starts those that end again."""

    def __init__(self, logs: Path, restart_seconds: float = RESTART_SECONDS) -> None:
        self._logs, self._restart_seconds = logs, restart_seconds
        self._running: dict[int, Component] = {}
        # A component may end before it is entered, so reaping waits while one is being started.
        self._lock = threading.Lock()

    def start(self, components: Sequence[Component]) -> None:
        """Starts components in their order."""
        for component in components:
            self._start(component)

    def run(self) -> None:
        """Reaps children for as long as the process lives."""
        while True:
            if not self.reap():
                time.sleep(_PAUSE_SECONDS)

    def reap(self) -> bool:
        """Waits for one child to end and plans its next start. Returns False if there is no child."""
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return False
        with self._lock:
            component = self._running.pop(pid, None)
        if component:
            self._start_later(component, f"ended with status {os.waitstatus_to_exitcode(status)}")
        return True

    def _start(self, component: Component) -> None:
        with self._lock, self._path(component).open("ab") as log:
            try:
                process = subprocess.Popen(component.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            except OSError as error:
                self._start_later(component, f"could not be started ({error})")
                return
            self._running[process.pid] = component
            # `reap` collects the status; without this the destructor of Popen would look for it too.
            process.returncode = 0

    def _start_later(self, component: Component, reason: str) -> None:
        with self._path(component).open("a") as log:
            log.write(f"supervisor: {component.name} {reason}, is started again\n")
        again = threading.Timer(self._restart_seconds, self._start, (component,))
        again.daemon = True
        again.start()

    def _path(self, component: Component) -> Path:
        return self._logs / f"{component.name}.log"
