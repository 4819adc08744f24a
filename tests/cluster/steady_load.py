"""Calls a tool all the time and counts how the calls ended: `python -m tests.cluster.steady_load URL OUTPUT`.

The token is read from TOOLMESH_TOKEN. It ends with its input: signals do not reach it in its pid namespace. Every call
has a key of its own, so that the client repeats a call whose connection broke.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import uuid
from pathlib import Path
from typing import TextIO

from toolmesh_sdk import Client
from toolmesh_sdk.errors import ToolmeshError

WORKERS = 4
PAUSE_SECONDS = 0.1
CALL_SECONDS = 60.0


class SteadyLoad:
    """Callers in threads, and what became of their calls."""

    def __init__(self, url: str, token: str, output: Path) -> None:
        self._url, self._token, self._output = url, token, output
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._invocations: list[str] = []
        self._failures: list[str] = []

    def stop_with(self, stream: TextIO) -> None:
        """Let every caller end its call and no more when the stream ends."""
        stream.read()
        self._ended.set()

    def run(self) -> None:
        """Call until the load is stopped."""
        threads = [threading.Thread(target=self._call_on) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self._ended.wait(1)
            self._write()
            for thread in threads if self._ended.is_set() else ():
                thread.join()
        self._write()

    def _call_on(self) -> None:
        with Client(self._url, token=self._token) as mesh:
            while not self._ended.wait(PAUSE_SECONDS):
                self._call(mesh, uuid.uuid4().hex)

    def _call(self, mesh: Client, key: str) -> None:
        try:
            result = mesh.call("echo", {"text": key}, idempotency_key=key, timeout=CALL_SECONDS)
            problem = "" if result.content == {"text": key} else f"another result: {result.content}"
        except ToolmeshError as error:
            problem = f"{type(error).__name__}: {error}"
        with self._lock:
            if problem:
                self._failures.append(problem)
            else:
                self._invocations.append(result.invocation_id)

    def _write(self) -> None:
        with self._lock:
            text = json.dumps({"invocations": self._invocations, "failures": self._failures})
        fresh = self._output.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self._output)


def main() -> None:
    """Run the load of the command line."""
    load = SteadyLoad(sys.argv[1], os.environ["TOOLMESH_TOKEN"], Path(sys.argv[2]))
    threading.Thread(target=load.stop_with, args=(sys.stdin,), daemon=True).start()
    load.run()


if __name__ == "__main__":
    main()
