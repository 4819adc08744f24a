"""Running the commands as a person would, and looking at what they leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localmesh.process.orphans import is_running
from localmesh.settings import ROOT

COMPOSITIONS = "localmesh.tests.standins"


@dataclass
class Commands:
    """The commands on one state folder."""

    state: Path
    composition: str = "few_parts"
    environment: Mapping[str, str] = field(default_factory=dict)
    popen: Mapping[str, Any] = field(default_factory=dict)
    interpreter: str = sys.executable

    def run(self, *arguments: str, seconds: float = 90) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*arguments), capture_output=True, text=True, timeout=seconds, check=False, **self.options()
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **self.options()
        )

    def up(self) -> dict[str, Any]:
        finished = self.run("up", "--detach", "--json")
        assert finished.returncode == 0, finished.stderr
        document: dict[str, Any] = json.loads(finished.stdout)
        return document

    def down(self) -> None:
        assert self.run("down").returncode == 0

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.run("status", "--json").stdout)
        return document

    def runtime(self) -> dict[str, Any]:
        """What the runner has written down; empty where it has not, without the cost of a process."""
        try:
            document: dict[str, Any] = json.loads((self.state / "runtime.json").read_text())
        except FileNotFoundError:
            return {}
        return document

    def ready(self) -> dict[str, Any] | None:
        """What the runner has written down, once it has found the mesh ready."""
        document = self.runtime()
        return document if document.get("ready_seconds") else None

    def part(self, name: str) -> dict[str, Any]:
        return next(entry for entry in self.runtime()["services"] if entry["name"] == name)

    def argv(self, command: str, *arguments: str) -> list[str]:
        line = [self.interpreter, "-m", "localmesh.tests.cli", command, *arguments, f"--state={self.state}"]
        return [*line, f"--composition={COMPOSITIONS}:{self.composition}"] if command == "up" else line

    def options(self) -> dict[str, Any]:
        return {"cwd": ROOT, "env": {**os.environ, **self.environment}, **self.popen}


def others_reach(path: Path) -> bool:
    """Return whether other users may enter every folder on the way to a path; root's own home is often closed."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


def pids(document: Mapping[str, Any]) -> list[int]:
    """The processes that a runtime document names, the runner included."""
    return [document["runner_pid"], *(entry["pid"] for entry in document["services"] if entry["pid"])]


def all_gone(processes: list[int]) -> bool:
    return not any(is_running(pid) for pid in processes)
