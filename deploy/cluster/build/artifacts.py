"""Builds all that the node runs into the user's cache: once for each content of the inputs, only what is missing."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from deploy.cluster.build.debian_packages import LOCK, unpack_packages, write_wrappers
from deploy.cluster.build.go_programs import AGENT_SANDBOX, MODULES, PROGRAMS, compile_program, copy_manifests
from deploy.cluster.build.image import write_program_image
from deploy.cluster.errors import ClusterError
from deploy.cluster.node.configuration import PAUSE_IMAGE
from deploy.cluster.progress import Progress
from deploy.cluster.requirements import BUILD_PROGRAMS, require_machine, require_room
from deploy.images import debian
from tools import build_gvisor

# Images of the node itself, each of one static program.
IMAGES = {
    "pause": PAUSE_IMAGE,
    "coredns": "toolmesh.local/cluster/coredns:1.14.0",
    "metrics-server": "toolmesh.local/cluster/metrics-server:0.9.0",
    "probe": "toolmesh.local/cluster/probe:1",
    "agent-sandbox-controller": "toolmesh.local/cluster/agent-sandbox-controller:0.5.6",
}
_SOURCES = Path(__file__).resolve().parent
_STEP = tuple[str, Path, Callable[[], None]]


def user_cache() -> Path:
    """Returns the folder that all builds of this user share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "toolmesh" / "cluster"


def input_digest(modules: Path = MODULES, sources: Path = _SOURCES, gvisor: Path = build_gvisor.PINS) -> str:
    """Returns a digest of the pins, sources and commands. Without the compiler's version: a built node needs none."""
    digest = hashlib.sha256()
    for root, pattern in ((modules, "**/*"), (sources, "*"), (gvisor, "*")):
        for path in sorted(path for path in root.glob(pattern) if path.is_file()):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(root)} {content}\n".encode())
    return digest.hexdigest()[:16]


def build_artifacts(progress: Progress, root: Path | None = None) -> Path:
    """Builds what is missing and returns the folder with all of it. Raises ClusterError."""
    root = root or user_cache()
    folder = root / input_digest()
    missing = [step for step in _steps(root, folder) if not step[1].exists()]
    if missing:
        require_machine(BUILD_PROGRAMS)
        require_room(root)
        progress.say(f"The node is built into {folder} (once; half an hour on two cores)")
    for number, (title, _, make) in enumerate(missing, 1):
        with progress.step(f"[{number}/{len(missing)}] {title}"):
            make()
    return folder


def _steps(root: Path, folder: Path) -> Iterator[_STEP]:
    programs, images, manifests, system = (folder / each for each in ("bin", "images", "manifests", "system"))
    for made in (programs, images, manifests):
        made.mkdir(parents=True, exist_ok=True)
    yield "fetch Debian packages", system, lambda: _make_system(system, programs, root / "debian")
    for program in PROGRAMS:
        title = f"build {program.name} {program.version}".rstrip()
        yield (
            title,
            programs / program.name,
            lambda program=program: compile_program(  # type: ignore[misc]
                program, programs, go_cache=root / "go", system=system
            ),
        )
    yield "build gVisor's runsc", programs / build_gvisor.PROGRAM, lambda: _build_runsc(programs)
    yield (
        "take the manifests of agent-sandbox",
        manifests / "agent-sandbox",
        lambda: copy_manifests(
            "agent-sandbox", AGENT_SANDBOX, "k8s", manifests / "agent-sandbox", go_cache=root / "go"
        ),
    )
    for name, image in IMAGES.items():
        target = images / f"{name}.tar"
        yield (
            f"write image {image}",
            target,
            lambda name=name, image=image, target=target: write_program_image(  # type: ignore[misc]
                target, image, programs / name
            ),
        )


def _build_runsc(programs: Path) -> None:
    try:
        build_gvisor.build(programs)
    except build_gvisor.BuildError as error:
        raise ClusterError(str(error)) from None


def _make_system(system: Path, programs: Path, downloads: Path) -> None:
    fresh = system.with_name(f"system.{os.getpid()}")
    try:
        unpack_packages(debian.read_lock(LOCK.read_text()).values(), fresh, downloads)
        write_wrappers(system, programs)
        fresh.rename(system)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
