"""Unpacks pinned Debian packages: downloads them with apt, compares their hashes, runs none of their scripts."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.images.platform import Platform

# What only a person at a terminal or the package manager reads.
LEFT_OUT = ("doc", "man", "locale", "lintian", "bug", "info", "menu", "applications", "pixmaps", "binfmts", "debhelper")


class DebianError(Exception):
    """A package cannot be had as it is pinned."""


@dataclass(frozen=True)
class Package:
    """A pinned package."""

    name: str
    version: str
    sha256: str


def lock_of(platform: Platform) -> Path:
    """Return the lock of the packages for a platform."""
    return Path(__file__).parent / f"debian-{platform.name}.lock"


def read_lock(text: str) -> dict[str, Package]:
    """Parse lines of `name version sha256`."""
    rows = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return {name: Package(name, version, digest) for name, version, digest in rows}


def download(packages: Iterable[Package], cache: Path, platform: Platform) -> list[Path]:
    """Return the packages' files, from the cache or from the machine's Debian mirror. Raises DebianError.

    apt reads its whole catalogue at each start, so it fetches all that is missing at once.
    """
    wanted = {package: cache / f"{package.name}_{package.sha256}.deb" for package in packages}
    missing = [package for package, file in wanted.items() if not file.exists()]
    if missing:
        cache.mkdir(parents=True, exist_ok=True)
        with _apt(platform, cache) as apt, tempfile.TemporaryDirectory(dir=cache) as folder:
            names = (f"{package.name}={package.version}" for package in missing)
            apt.run("apt-get", "-q", "download", *names, cwd=Path(folder))
            fetched = {file.name.partition("_")[0]: file for file in Path(folder).glob("*.deb")}
            for package in missing:
                fetched[package.name].replace(wanted[package])
    for package, file in wanted.items():
        _require_hash(package, file)
    return list(wanted.values())


def unpack(files: Iterable[Path], root: Path) -> None:
    """Unpack packages into a root whose /bin, /sbin, /lib and /lib64 are links into /usr."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (root / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    options = ["-x", "-C", str(root), "--keep-directory-symlink", "--no-same-owner"]
    options += [f"--exclude=./usr/share/{name}" for name in LEFT_OUT]
    for file in files:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(file)], stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", *options], stdin=archive.stdout, check=True)
        if archive.returncode:
            raise DebianError(f"{file.name} cannot be unpacked")


def pin(names: Sequence[str], platform: Platform, cache: Path) -> str:
    """Return a lock of the versions that the machine's mirror offers."""
    cache.mkdir(parents=True, exist_ok=True)
    with _apt(platform, cache) as apt:
        shown = apt.run("apt-cache", "show", "--no-all-versions", *names)
    rows = []
    for record in shown.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in record.splitlines() if ": " in line and line[0] != " ")
        rows.append(f"{fields['Package']} {fields['Version']} {fields['SHA256']}")
    title = f"# name version sha256, for {platform.name}; written by `python -m deploy.images --pin`"
    return "\n".join((title, *sorted(rows), ""))


@dataclass(frozen=True)
class _Apt:
    """The programs of apt, with a catalogue of their own."""

    options: list[str]
    warnings: str
    """What failed while the catalogue was fetched."""

    def run(self, program: str, *words: str, cwd: Path | None = None) -> str:
        """Return what a program of apt writes. Raises DebianError, which also tells what failed before."""
        done = subprocess.run([program, *self.options, *words], cwd=cwd, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DebianError("\n".join((f"{program}: {done.stderr.strip()[-400:]}", self.warnings)).strip())
        return done.stdout


@contextmanager
def _apt(platform: Platform, folder: Path) -> Iterator[_Apt]:
    """Give apt for a platform, with a catalogue of its own: the machine's may be of another."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        for inner in ("lists/partial", "archives/partial"):
            (place / inner).mkdir(parents=True)
        (place / "status").touch()
        settings = {
            "APT::Architecture": platform.name,
            "APT::Architectures": platform.name,
            "APT::Sandbox::User": "",
            "Debug::NoLocking": "1",
            "Dir::State::lists": place / "lists",
            "Dir::State::status": place / "status",
            "Dir::Cache": place,
        }
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        # A source that does not answer may be one that nothing is taken from.
        update = ["apt-get", "-q", *options, "update"]
        updated = subprocess.run(update, capture_output=True, text=True, check=False)
        yield _Apt(options, f"apt-get update: {updated.stderr.strip()[-400:]}" if updated.stderr.strip() else "")


def _require_hash(package: Package, file: Path) -> None:
    if (found := hashlib.sha256(file.read_bytes()).hexdigest()) != package.sha256:
        file.unlink()
        raise DebianError(f"{package.name} {package.version} has the hash {found}, pinned is {package.sha256}")
