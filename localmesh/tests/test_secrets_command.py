"""`toolmesh secrets`: values go in by standard input or a file, and never come out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from libs.common.sealing import read_seal
from libs.common.secret_store.folders import SealedFolder
from localmesh.state.keys import ensure_secrets
from localmesh.state.secrets import SecretFiles
from localmesh.state.state import open_state
from localmesh.tests.harness import Commands

VALUE = "v4lue-that-must-not-show"


@pytest.fixture
def store(tmp_path: Path) -> SealedFolder:
    state = open_state(tmp_path / "state")
    ensure_secrets(state)
    files = SecretFiles(state.secrets)
    return SealedFolder(files.tool_secrets, read_seal(files.sealing_keys))


def run(tmp_path: Path, *arguments: str, value: str = "") -> subprocess.CompletedProcess[str]:
    commands = Commands(tmp_path / "state")
    return subprocess.run(
        [*commands.argv("secrets", *arguments)],
        input=value,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **commands.options(),
    )


def test_a_secret_is_set_rotated_listed_and_removed(tmp_path: Path, store: SealedFolder) -> None:
    binding = ("--host", "api.example.com", "--namespace", "acme", "--expires", "2030-01-01")
    done = [run(tmp_path, "set", "crm_key", *binding, value=f"{VALUE}\n")]
    found = store.find("crm_key", "")
    assert found is not None
    assert (found.value, found.binding.hosts) == (VALUE, ("api.example.com",))
    done.append(run(tmp_path, "rotate", "crm_key", "--json", value=VALUE + "-2"))
    rotated = store.find("crm_key", "")
    assert rotated is not None
    assert (rotated.value, rotated.binding.hosts, rotated.binding.expires) == (VALUE + "-2", found.binding.hosts, None)
    done += [run(tmp_path, "list"), listed := run(tmp_path, "list", "--json")]
    assert [each["name"] for each in json.loads(listed.stdout)["secrets"]] == ["crm_key"]
    done.append(run(tmp_path, "remove", "crm_key"))
    assert store.find("crm_key", "") is None
    assert [each.returncode for each in done] == [0] * 5, [each.stderr for each in done]
    assert not any(VALUE in each.stdout + each.stderr for each in done)


def test_a_value_may_come_from_a_file_and_belong_to_a_tenant(tmp_path: Path, store: SealedFolder) -> None:
    (tmp_path / "value").write_text(VALUE)
    bound = ("--host", "api.example.com", "--namespace", "acme", "--tenant", "t1")
    done = run(tmp_path, "set", "crm_key", *bound, "--from-file", str(tmp_path / "value"))
    assert done.returncode == 0, done.stderr
    found = store.find("crm_key", "t1")
    assert found is not None
    assert found.value == VALUE


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("set", "Crm", "--host", "a.example", "--namespace", "acme"), 2),
        (("set", "crm", "--host", "https://a.example", "--namespace", "acme"), 2),
        (("set", "crm", "--host", "a.example", "--namespace", "acme", "--expires", "soon"), 2),
        (("set", "crm", "--host", "a.example"), 2),
        (("rotate", "absent"), 1),
        (("remove", "absent"), 1),
    ],
)
def test_wrong_usage_is_refused_without_the_value(
    tmp_path: Path, store: SealedFolder, arguments: tuple[str, ...], code: int
) -> None:
    done = run(tmp_path, *arguments, value=VALUE)
    assert done.returncode == code, done.stderr
    assert VALUE not in done.stdout + done.stderr
    assert [*store.entries()] == []


def test_without_a_mesh_there_is_nothing_to_keep_secrets_in(tmp_path: Path) -> None:
    assert run(tmp_path, "list").returncode == 3
