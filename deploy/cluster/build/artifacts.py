"""Builds all that the node runs into the user's cache: once for each content of the inputs, only what is missing."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from deploy.cluster.build.debian_packages import LOCK, unpack_packages, write_wrappers
from deploy.cluster.build.go_programs import (
    AGENT_SANDBOX,
    AGENT_SANDBOX_CONTROLLER,
    MODULES,
    PROGRAMS,
    GoProgram,
    compile_program,
    copy_manifests,
)
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
}
AGENT_SANDBOX_IMAGE = "toolmesh.local/cluster/agent-sandbox-controller:0.5.6"
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
    """Builds what the node lacks and returns the folder with all of it. Raises ClusterError."""
    root = root or user_cache()
    folder = root / input_digest()
    notice = f"The node is built into {folder} (once; half an hour on two cores)"
    _build_missing(_node_steps(root, folder), root, progress, notice)
    return folder


def build_agent_sandbox(progress: Progress, root: Path | None = None) -> Path:
    """Builds what agent-sandbox adds to a node that is built: `manifests`, `image.tar`. Returns their folder.

    Raises ClusterError.
    """
    root = root or user_cache()
    folder = root / input_digest() / AGENT_SANDBOX_CONTROLLER.module
    notice = f"The controller is built into {folder} (once; ten minutes on two cores)"
    _build_missing(_agent_sandbox_steps(root, folder), root, progress, notice)
    return folder


def _build_missing(steps: Iterable[_STEP], root: Path, progress: Progress, notice: str) -> None:
    missing = [step for step in steps if not step[1].exists()]
    if missing:
        require_machine(BUILD_PROGRAMS)
        require_room(root)
        progress.say(notice)
    for number, (title, _, make) in enumerate(missing, 1):
        with progress.step(f"[{number}/{len(missing)}] {title}"):
            make()


def _node_steps(root: Path, folder: Path) -> Iterator[_STEP]:
    programs, images, system = (folder / each for each in ("bin", "images", "system"))
    for made in (programs, images):
        made.mkdir(parents=True, exist_ok=True)
    yield "fetch Debian packages", system, lambda: _make_system(system, programs, root / "debian")
    for program in PROGRAMS:
        yield _compile_step(program, programs, root, system)
    yield "build gVisor's runsc", programs / build_gvisor.PROGRAM, lambda: _build_runsc(programs)
    for name, image in IMAGES.items():
        yield _image_step(image, images / f"{name}.tar", programs / name)


def _agent_sandbox_steps(root: Path, folder: Path) -> Iterator[_STEP]:
    folder.mkdir(parents=True, exist_ok=True)
    controller, manifests = AGENT_SANDBOX_CONTROLLER, folder / "manifests"
    yield _compile_step(controller, folder, root, folder.with_name("system"))
    yield (
        "take the manifests of agent-sandbox",
        manifests,
        lambda: copy_manifests(controller.module, AGENT_SANDBOX, "k8s", manifests, go_cache=root / "go"),
    )
    yield _image_step(AGENT_SANDBOX_IMAGE, folder / "image.tar", folder / controller.name)


def _compile_step(program: GoProgram, folder: Path, root: Path, system: Path) -> _STEP:
    title = f"build {program.name} {program.version}".rstrip()
    return title, folder / program.name, lambda: compile_program(program, folder, go_cache=root / "go", system=system)


def _image_step(image: str, target: Path, program: Path) -> _STEP:
    return f"write image {image}", target, lambda: write_program_image(target, image, program)


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
