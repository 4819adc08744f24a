"""Installs MCP servers from a Python package index, once, by the hashes of a lock file."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from toolmesh_sdk.cli.installs.package import (
    InstalledServer,
    InstallError,
    digest_of,
    interpreter,
    make_read_only,
    run_installer,
)

_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]*\])?(==[A-Za-z0-9.!+_-]+)?")
_SEPARATORS = re.compile(r"[-_.]+")
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--only-binary=:all:")
# Isolated from the machine's packages; `addsitedir` also reads the path files of the installation.
_BOOT = (
    "import site, sys; site.addsitedir({folder!r}); sys.argv[0] = {name!r};"
    " from {module} import {top}; sys.exit({call}())"
)


def install_pypi(requirement: str, arguments: tuple[str, ...], folder: Path) -> InstalledServer:
    """Install `mcp-server-time` or `mcp-server-time==1.0` into a folder below `folder`. Raises InstallError."""
    if not _REQUIREMENT.fullmatch(requirement):
        raise InstallError(f"{requirement!r} is not a package, such as mcp-server-time or mcp-server-time==1.0")
    name = requirement.partition("==")[0].partition("[")[0]
    lock, version = _lock(requirement, name)
    place = folder / f"{_normal(name)}-{version}-{digest_of(lock).removeprefix('sha256:')[:12]}"
    if not place.exists():
        _install(lock, place)
    module, attribute, script = _entry_point(place, name)
    boot = _BOOT.format(folder=str(place), name=script, module=module, top=attribute.partition(".")[0], call=attribute)
    command = (interpreter(), "-I", "-B", "-c", boot, *arguments)
    return InstalledServer(command, (place,), f"pypi:{name}=={version}", digest_of(lock))


def _lock(requirement: str, name: str) -> tuple[bytes, str]:
    """Return the lock file of a requirement, with a hash for each package, and the version of the package itself."""
    report = json.loads(run_installer((*_PIP, "--dry-run", "--ignore-installed", "--report", "-", requirement)))
    lines, version = [], ""
    for item in report["install"]:
        package = item["metadata"]
        lines.append(f"{_normal(package['name'])}=={package['version']} --hash=sha256:{_sha256(item)}")
        if _normal(package["name"]) == _normal(name):
            version = package["version"]
    return "".join(f"{line}\n" for line in sorted(lines)).encode(), version


def _sha256(item: dict[str, Any]) -> str:
    hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
    if "sha256" not in hashes:
        raise InstallError(f"the index has no hash of {item['metadata']['name']}")
    return str(hashes["sha256"])


def _install(lock: bytes, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(dir=place.parent))
    try:
        requirements = staged / "requirements.lock"
        requirements.write_bytes(lock)
        target = ("--target", str(staged), "--no-deps", "--require-hashes", "--no-compile", "-r", str(requirements))
        run_installer((*_PIP, *target))
        make_read_only(staged)
        staged.rename(place)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise


def _entry_point(place: Path, name: str) -> tuple[str, str, str]:
    """Return module, attribute and name of the program that a package installs."""
    for distribution in distributions(path=[str(place)]):
        if _normal(str(distribution.metadata["Name"])) == _normal(name):
            return _script(distribution, name)
    raise InstallError(f"{name} is not among the installed packages")


def _script(distribution: Distribution, name: str) -> tuple[str, str, str]:
    scripts = [point for point in distribution.entry_points if point.group == "console_scripts"]
    if not scripts:
        raise InstallError(f"{name} installs no program, so it is no MCP server")
    chosen = next((point for point in scripts if _normal(point.name) == _normal(name)), scripts[0])
    return chosen.module, chosen.attr, chosen.name


def _normal(name: str) -> str:
    return _SEPARATORS.sub("-", name).lower()
