"""Go programs are built from pinned sources, whatever the caller's settings, and appear only when they are whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.cluster.build.artifacts import AGENT_SANDBOX_IMAGE
from deploy.cluster.build.go_programs import (
    AGENT_SANDBOX,
    AGENT_SANDBOX_CONTROLLER,
    MODULES,
    PROGRAMS,
    GoProgram,
    compile_program,
    copy_manifests,
    environment,
)
from deploy.cluster.errors import ClusterError
from tools import build_gvisor

# Writes its arguments and some variables into the file that it is asked to build.
COMPILER = """#!/bin/sh
for word; do case "$word" in -o=*) target="${word#-o=}";; esac; done
{ pwd; printf '%s\\n' "$@"; env | grep ^GO; } > "$target"
exit "${COMPILER_EXIT:-0}"
"""
PROGRAM = GoProgram("two-names", "tools", "./pause", stamps=("a.b=1", "a.c=2"), tags="x,y", aliases=("other",))


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs, and a compiler on the PATH."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "go").write_text(COMPILER)
    (tools / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    target = tmp_path / "bin"
    target.mkdir()
    return target


def build(folder: Path) -> None:
    compile_program(PROGRAM, folder, go_cache=folder.parent / "go", system=folder.parent / "system")


def test_every_module_pins_its_sources() -> None:
    modules = {program.module for program in (*PROGRAMS, AGENT_SANDBOX_CONTROLLER)}
    assert modules == {path.name for path in MODULES.iterdir()}
    # `tools` uses the standard library alone.
    assert [name for name in modules - {"tools"} if not (MODULES / name / "go.sum").is_file()] == []


def test_gvisors_shim_is_of_the_release_of_runsc() -> None:
    pinned = f"gvisor.dev/gvisor {build_gvisor.pinned_version()} "
    assert pinned in (MODULES / "gvisor" / "go.mod").read_text()


def test_the_manifests_of_agent_sandbox_name_the_image_that_is_built() -> None:
    image, module = AGENT_SANDBOX_IMAGE, MODULES / "agent-sandbox"
    assert f'"{image}"' in (module / "kustomization.yaml").read_text()
    assert f"{AGENT_SANDBOX} v{image.rpartition(':')[2]} " in (module / "go.mod").read_text()


def test_manifests_are_taken_from_the_pinned_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools, module = tmp_path / "tools", tmp_path / "module"
    (module / "k8s" / "crds").mkdir(parents=True)
    (module / "k8s" / "crds" / "one.yaml").write_text("{}")
    tools.mkdir()
    (tools / "go").write_text(f'#!/bin/sh\nfor word; do last="$word"; done\ntest "$last" = named && echo {module}\n')
    (tools / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    copy_manifests("agent-sandbox", "named", "k8s", tmp_path / "target", go_cache=tmp_path / "go")
    found = {str(path.relative_to(tmp_path / "target")) for path in (tmp_path / "target").rglob("*.yaml")}
    assert found == {"kustomization.yaml", "upstream/crds/one.yaml"}


def test_a_program_is_built_in_its_module_under_all_its_names(compiler: Path) -> None:
    build(compiler)
    assert {path.name for path in compiler.iterdir()} == {"two-names", "other"}
    folder, *words = (compiler / "other").read_text().splitlines()
    assert folder == str(MODULES / "tools")
    assert {"-trimpath", "-mod=readonly", "-tags=x,y", "-ldflags=-s -w -X a.b=1 -X a.c=2", "./pause"} <= set(words)


def test_a_build_that_fails_leaves_nothing(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILER_EXIT", "1")
    with pytest.raises(ClusterError):
        build(compiler)
    assert list(compiler.iterdir()) == []


def test_only_settings_that_lead_to_sources_are_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"GOFLAGS": "-mod=mod", "GOARCH": "arm64", "CGO_CFLAGS": "-O0", "GOPROXY": "https://proxy.example"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    variables = environment(tmp_path / "go", tmp_path / "system", cgo=False)
    assert variables["GOPROXY"] == "https://proxy.example"
    assert (variables["GOARCH"], variables["GOFLAGS"]) == ("amd64", "-modcacherw")
    assert "CGO_CFLAGS" not in variables
    assert variables["GOCACHE"] == str(tmp_path / "go" / "build")


def test_libraries_of_c_come_from_the_unpacked_packages(tmp_path: Path) -> None:
    variables = environment(tmp_path / "go", tmp_path / "system", cgo=True)
    assert variables["CGO_ENABLED"] == "1"
    assert variables["PKG_CONFIG_SYSROOT_DIR"] == str(tmp_path / "system")
    assert "-extldflags -static" in " ".join(GoProgram("c", "runc", ".", cgo=True).command(tmp_path / "c"))
