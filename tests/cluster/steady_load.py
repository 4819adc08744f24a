"""Calls a tool all the time: `python -m tests.cluster.steady_load URL OUTPUT KIND [CALLS]`.

The token is read from TOOLMESH_TOKEN. It ends after CALLS calls or with its input: signals do not reach it in its pid
namespace. Every call has a key of its own, so that the client repeats a call whose connection broke.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from toolmesh_sdk import Client, Reason
from toolmesh_sdk.errors import ToolmeshError

CALL_SECONDS = 60.0


@dataclass(frozen=True)
class Kind:
    """What is called, by how many callers, and their pause between two calls."""

    tool: str
    arguments: dict[str, Any]
    """`KEY` stands for the key of the call."""
    workers: int = 4
    pause_seconds: float = 0.1


KINDS = {
    "echo": Kind("core.echo", {"text": "KEY"}),
    "flood": Kind("core.echo", {"text": "KEY"}, workers=16, pause_seconds=0.0),
    "process": Kind("samples.word_statistics", {"text": "KEY"}),
    "kernel": Kind("samples.kernel_statistics", {"text": "KEY"}),
    "reports": Kind(
        "samples.write_shared_report", {"name": "KEY", "title": "KEY", "body": ""}, workers=2, pause_seconds=1.0
    ),
}


@dataclass
class Outcomes:
    """Keys of the calls by how they ended."""

    invocations: dict[str, str] = field(default_factory=dict)
    """The invocation of each answered call, by its key."""
    uncertain: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class SteadyLoad:
    """Callers in threads, and what became of their calls."""

    def __init__(self, url: str, token: str, output: Path, kind: Kind, calls: int | None) -> None:
        self._url, self._token, self._output, self._kind = url, token, output, kind
        self._numbers = iter(itertools.count() if calls is None else range(calls))
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._outcomes = Outcomes()

    def stop_with(self, stream: TextIO) -> None:
        """Let every caller end its call and no more when the stream ends."""
        stream.read()
        self._ended.set()

    def run(self) -> None:
        """Call until the load is stopped or has made its calls."""
        threads = [threading.Thread(target=self._call_on) for _ in range(self._kind.workers)]
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
            while self._has_more() and not self._ended.wait(self._kind.pause_seconds):
                self._call(mesh, uuid.uuid4().hex)

    def _has_more(self) -> bool:
        with self._lock:
            return next(self._numbers, None) is not None

    def _call(self, mesh: Client, key: str) -> None:
        arguments = {name: key if value == "KEY" else value for name, value in self._kind.arguments.items()}
        try:
            result = mesh.call(self._kind.tool, arguments, idempotency_key=key, timeout=CALL_SECONDS)
        except ToolmeshError as error:
            with self._lock:
                # An executor was lost amid a write that must not be repeated.
                if error.reason is Reason.UNKNOWN_OUTCOME:
                    self._outcomes.uncertain.append(key)
                else:
                    self._outcomes.failures.append(f"{key}: {error} {dict(error.metadata)}")
            return
        problem = self._kind.tool == "core.echo" and result.content != arguments
        with self._lock:
            self._outcomes.invocations[key] = result.invocation_id
            self._outcomes.failures += [f"{key}: another result: {result.content}"] if problem else []

    def _write(self) -> None:
        with self._lock:
            text = json.dumps(vars(self._outcomes))
        fresh = self._output.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self._output)


def main() -> None:
    """Run the load of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("output", type=Path)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("calls", type=int, nargs="?")
    options = parser.parse_args()
    load = SteadyLoad(options.url, os.environ["TOOLMESH_TOKEN"], options.output, KINDS[options.kind], options.calls)
    threading.Thread(target=load.stop_with, args=(sys.stdin,), daemon=True).start()
    load.run()


if __name__ == "__main__":
    main()
