"""The commands of `toolmesh deploy` that need no cluster."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from localmesh.deploy.commands import app


def test_the_edges_configuration_is_written_with_its_settings(repository: Path, tmp_path: Path) -> None:
    template, output = repository / "deploy" / "envoy" / "envoy.yaml", tmp_path / "envoy.yaml"
    arguments = ["render-envoy", "--template", str(template), "--output", str(output), "--node-id", "envoy-7"]
    ran = CliRunner().invoke(app, arguments, env={"TOOLMESH_TRUST_DOMAIN": "mesh.example"})
    assert ran.exit_code == 0
    assert "spiffe://mesh.example/" in output.read_text()
    assert "envoy-7" in output.read_text()


def test_a_missing_template_is_refused(tmp_path: Path) -> None:
    arguments = [
        "render-envoy",
        "--template",
        str(tmp_path / "none"),
        "--output",
        str(tmp_path / "o"),
        "--node-id",
        "e",
    ]
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_profiles_for_a_missing_folder_are_wrong_usage(repository: Path, tmp_path: Path) -> None:
    arguments = ["place-profiles", str(repository / "deploy" / "seccomp"), str(tmp_path / "none")]
    assert CliRunner().invoke(app, arguments).exit_code == 2
