"""A pack under development: written, loaded, changed and broken while the mesh runs."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.harness.mesh import Mesh, cli


@pytest.fixture(scope="module")
def mesh(mesh_of_two_executors: Mesh) -> Mesh:
    return mesh_of_two_executors


def develop(mesh: Mesh, pack: Path, *, check: bool = True) -> dict[str, Any]:
    done = cli("pack", "dev", str(pack), "--once", "--json", state=mesh.state, check=check)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def greet(mesh: Mesh, pack: Path, **arguments: Any) -> Any:
    """Ask both executors, in turns."""
    token = mesh.token()
    contents = [greet_once(mesh, token, pack, arguments) for _ in range(4)]
    assert all(content == contents[0] for content in contents)
    return contents[0]


def greet_once(mesh: Mesh, token: str, pack: Path, arguments: dict[str, Any]) -> Any:
    """Call the tool, again where the answer says so: on a busy machine its sandbox may not be ready in time."""
    while True:
        answer = mesh.rpc("tools.invoke", {"tool": f"{pack.name}.greet", "arguments": arguments}, token=token).json()
        if "result" in answer:
            return answer["result"]["structured_content"]
        assert answer["error"]["data"].get("retryable"), answer


def versions(done: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(each["version"].rpartition("/")[2], each["created"]) for each in done["versions"]]


def test_a_pack_runs_after_every_save_without_a_restart(mesh: Mesh, tmp_path: Path) -> None:
    before = {part["name"]: part["pid"] for part in mesh.status()["services"]}
    # No earlier attempt at this test has registered versions of it.
    pack = tmp_path / f"greeter{uuid.uuid4().hex[:8]}"
    cli("pack", "init", str(pack))
    module = pack / "tools.py"
    first = develop(mesh, pack)
    assert versions(first) == [("1.0.0", True)]
    assert greet(mesh, pack, name="Bo") == {"result": "Hello, Bo!"}

    # Another body under the same contract is no new version.
    module.write_text(module.read_text().replace('return f"Hello, {name}!"', 'return f"Hello, {name.strip()}!"'))
    second = develop(mesh, pack)
    assert versions(second) == [("1.0.0", False)]
    assert second["digest"] != first["digest"]
    assert greet(mesh, pack, name=" Bo ") == {"result": "Hello, Bo!"}

    # An optional argument is a compatible change, another name of an argument is none.
    module.write_text(module.read_text().replace("name: str)", 'name: str, sign: str = "!")').replace("}!", "}{sign}"))
    assert versions(develop(mesh, pack)) == [("1.1.0", True)]
    assert versions(develop(mesh, pack)) == [("1.1.0", False)]
    module.write_text(module.read_text().replace("name", "person"))
    assert versions(develop(mesh, pack)) == [("2.0.0", True)]
    assert greet(mesh, pack, person="Bo", sign="?") == {"result": "Hello, Bo?"}

    # What is broken is not loaded.
    module.write_text(module.read_text() + "\nx = = 1\n")
    [problem] = develop(mesh, pack, check=False)["problems"]
    assert problem["file"] == str(module)
    assert greet(mesh, pack, person="Bo") == {"result": "Hello, Bo!"}
    assert {part["name"]: part["pid"] for part in mesh.status()["services"]} == before


def test_a_pack_of_the_mesh_is_not_taken_over(mesh: Mesh, tmp_path: Path) -> None:
    cli("pack", "init", str(tmp_path / "wordkit"))
    [problem] = develop(mesh, tmp_path / "wordkit", check=False)["problems"]
    assert "rename" in problem["message"]


def test_a_pack_is_tested_published_with_its_provenance_and_debugged(mesh: Mesh, tmp_path: Path) -> None:
    pack, key = tmp_path / "divider", str(tmp_path / "key.pem")
    cli("pack", "init", str(pack))
    module = pack / "tools.py"
    module.write_text(
        module.read_text().replace('return f"Hello, {name}!"', 'return f"Hello, {name}!" if name else 1 / 0')
    )
    assert json.loads(cli("pack", "check", str(pack), "--json", check=False).stdout)["tools"] == ["greet"]
    # Made calls find what the example does not.
    tried = json.loads(cli("pack", "test", str(pack), "--cases", "20", "--json", state=mesh.state, check=False).stdout)
    assert "ZeroDivisionError" in tried["tools"][0]["problems"][0]
    develop(mesh, pack)
    ran = cli("call", "divider.greet", '{"name": ""}', "--debug", state=mesh.state, check=False)
    assert ran.returncode != 0
    assert "ZeroDivisionError" in ran.stderr

    module.write_text(module.read_text().replace(" if name else 1 / 0", ""))
    loaded = develop(mesh, pack)
    assert cli("pack", "publish", str(pack), "--key", key, state=mesh.state, check=False).returncode == 2
    published = publish(mesh, pack, key, "v1")
    assert published["provenance"]["pack_digest"] == loaded["digest"]
    assert versions(published) == [("1.0.1", True)]
    words = ("tools", "show", "divider.greet", "--version", "1.0.1", "--json")
    provenance = json.loads(cli(*words, state=mesh.state).stdout)["version"]["manifest"]["provenance"]
    assert provenance.items() >= published["provenance"].items()
    # The same code at another revision is there already; other code is the next version.
    assert versions(publish(mesh, pack, key, "v2")) == [("1.0.1", False)]
    (pack / "more.py").write_text("X = 1\n")
    assert versions(publish(mesh, pack, key, "v3")) == [("1.0.2", True)]


def publish(mesh: Mesh, pack: Path, key: str, revision: str) -> dict[str, Any]:
    words = ("pack", "publish", str(pack), "--key", key, "--revision", revision, "--json")
    return json.loads(cli(*words, state=mesh.state).stdout)  # type: ignore[no-any-return]
