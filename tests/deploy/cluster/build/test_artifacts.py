"""What the node runs is built once for each content of its inputs, and only what is missing."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.cluster.build import artifacts
from deploy.cluster.build.go_programs import AGENT_SANDBOX_CONTROLLER, PROGRAMS, GoProgram
from deploy.cluster.errors import ClusterError
from deploy.cluster.progress import Progress


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was built, in the order of the build. The builders write one byte each."""
    names: list[str] = []

    def record(name: str, target: Path) -> None:
        names.append(name)
        target.write_bytes(b"1")

    def system(system: Path, programs: Path, downloads: Path) -> None:
        names.append("system")
        system.mkdir()

    def compile_program(program: GoProgram, folder: Path, *, go_cache: Path, system: Path) -> None:
        assert system.is_dir()
        record(program.name, folder / program.name)

    def image(target: Path, reference: str, program: Path) -> None:
        assert program.is_file()
        record(reference, target)

    def runsc(programs: Path) -> None:
        record("runsc", programs / "runsc")

    def copy_manifests(module: str, dependency: str, folder: str, target: Path, *, go_cache: Path) -> None:
        names.append(f"manifests of {module}")
        target.mkdir()

    for name, fake in {
        "_make_system": system,
        "_build_runsc": runsc,
        "copy_manifests": copy_manifests,
        "compile_program": compile_program,
        "write_program_image": image,
    }.items():
        monkeypatch.setattr(artifacts, name, fake)
    for name in ("require_machine", "require_room"):
        monkeypatch.setattr(artifacts, name, _content)
    return names


def _content(*_: object) -> None:
    """A machine that has everything."""


def progress() -> Progress:
    return Progress(io.StringIO())


def test_everything_is_built_once(built: list[str], tmp_path: Path) -> None:
    folder = artifacts.build_artifacts(progress(), tmp_path)
    assert built == ["system", *(program.name for program in PROGRAMS), "runsc", *artifacts.IMAGES.values()]
    assert {path.stem for path in (folder / "images").iterdir()} == artifacts.IMAGES.keys()
    built.clear()
    assert artifacts.build_artifacts(progress(), tmp_path) == folder
    assert built == []


def test_agent_sandbox_is_built_when_it_is_added_and_once(built: list[str], tmp_path: Path) -> None:
    node = artifacts.build_artifacts(progress(), tmp_path)
    built.clear()
    folder = artifacts.build_agent_sandbox(progress(), tmp_path)
    controller = AGENT_SANDBOX_CONTROLLER.name
    assert built == [controller, "manifests of agent-sandbox", artifacts.AGENT_SANDBOX_IMAGE]
    assert {path.name for path in folder.iterdir()} == {controller, "manifests", "image.tar"}
    built.clear()
    assert artifacts.build_agent_sandbox(progress(), tmp_path) == folder
    assert artifacts.build_artifacts(progress(), tmp_path) == node
    assert built == []


def test_an_interrupted_build_goes_on_where_it_was(built: list[str], tmp_path: Path) -> None:
    folder = artifacts.build_artifacts(progress(), tmp_path)
    (folder / "bin" / "runc").unlink()
    (folder / "images" / "probe.tar").unlink()
    built.clear()
    artifacts.build_artifacts(progress(), tmp_path)
    assert built == ["runc", artifacts.IMAGES["probe"]]


def test_a_machine_that_cannot_build_is_refused_before_anything_is_built(
    built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ClusterError("no room")

    monkeypatch.setattr(artifacts, "require_room", refuse)
    with pytest.raises(ClusterError):
        artifacts.build_artifacts(progress(), tmp_path)
    assert built == []


def write_inputs(folder: Path) -> tuple[Path, Path, Path]:
    modules, sources, gvisor = (folder / name for name in ("go", "build", "gvisor"))
    (modules / "one").mkdir(parents=True)
    sources.mkdir()
    gvisor.mkdir()
    (gvisor / "runsc.sha256").write_text("three")
    (modules / "one" / "go.sum").write_text("one")
    (sources / "debian.lock").write_text("two")
    return modules, sources, gvisor


def change_pin(modules: Path, sources: Path, gvisor: Path) -> None:
    (modules / "one" / "go.sum").write_text("other")


def change_lock(modules: Path, sources: Path, gvisor: Path) -> None:
    (sources / "debian.lock").write_text("other")


def change_runsc(modules: Path, sources: Path, gvisor: Path) -> None:
    (gvisor / "runsc.sha256").write_text("other")


def move_pin(modules: Path, sources: Path, gvisor: Path) -> None:
    (modules / "one").rename(modules / "two")


@pytest.mark.parametrize("change", [change_pin, change_lock, change_runsc, move_pin])
def test_a_changed_input_has_another_digest(tmp_path: Path, change: Callable[[Path, Path, Path], None]) -> None:
    inputs = write_inputs(tmp_path)
    before = artifacts.input_digest(*inputs)
    assert artifacts.input_digest(*inputs) == before
    change(*inputs)
    assert artifacts.input_digest(*inputs) != before


def test_caches_of_the_interpreter_are_no_input(tmp_path: Path) -> None:
    modules, sources, gvisor = write_inputs(tmp_path)
    before = artifacts.input_digest(modules, sources, gvisor)
    (sources / "__pycache__").mkdir()
    (sources / "__pycache__" / "image.cpython-311.pyc").touch()
    assert artifacts.input_digest(modules, sources, gvisor) == before


def test_a_cache_can_be_placed_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert artifacts.user_cache() == tmp_path / "toolmesh" / "cluster"
