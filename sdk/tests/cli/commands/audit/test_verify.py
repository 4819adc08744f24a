"""`toolmesh audit verify` and `export`: what they print, and how they exit."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from toolmesh_sdk.audit import Report
from toolmesh_sdk.cli.commands.audit.verify import pinned_file
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.main import build
from typer.testing import CliRunner

from sdk.tests.audit_sample import Key, a_log, change_lines, root_of, write


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(build(plugins=()), ["audit", *map(str, arguments)])


@pytest.fixture
def key() -> Key:
    return Key()


@pytest.fixture
def export(tmp_path: Path, key: Key) -> Path:
    return write(tmp_path / "export", key, a_log(12)[0])


def test_a_good_export_is_verified_and_exits_with_0(export: Path, key: Key) -> None:
    ran = run("verify", export, "--key", key.text)
    assert ran.exit_code == 0, ran.output
    assert "verified" in ran.stdout
    assert "12 records" in ran.stdout


def test_the_key_may_be_in_a_file(export: Path, key: Key, tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text(key.text + "\n")
    assert run("verify", export, "--key", tmp_path / "key.txt").exit_code == 0


def test_a_tampered_export_names_kind_and_place_and_exits_with_1(export: Path, key: Key) -> None:
    change_lines(export, lambda lines: [*lines[:7], *lines[8:]])
    ran = run("verify", export, "--key", key.text)
    assert ran.exit_code == 1
    assert "TAMPERED" in ran.stdout
    assert "deletion at sequence 7" in ran.stdout


def test_the_report_as_json(export: Path, key: Key) -> None:
    change_lines(export, lambda lines: [*lines[:7], *lines[8:]])
    ran = run("verify", export, "--key", key.text, "--json")
    report = json.loads(ran.stdout)
    assert (report["outcome"], report["exit_code"], ran.exit_code) == ("tampered", 1, 1)
    assert (report["first"]["kind"], report["first"]["sequence"]) == ("deletion", 7)


def test_what_cannot_be_verified_exits_with_2(tmp_path: Path, key: Key) -> None:
    assert run("verify", tmp_path / "nothing", "--key", key.text).exit_code == 2
    assert run("verify", tmp_path).exit_code == 2, "no key"
    assert run("verify", tmp_path, "--key", "nonsense").exit_code == 2
    assert run("verify", "--state", tmp_path).exit_code == 2, "no mesh"


def test_a_known_checkpoint_is_compared(export: Path, key: Key, tmp_path: Path) -> None:
    shard = a_log(12)[0]
    good, bad, broken = (tmp_path / name for name in ("good", "bad", "broken"))
    good.write_text(key.note(0, 5, root_of(shard.leaves[:5])))
    bad.write_text(key.note(0, 5, root_of(shard.leaves[1:6])))
    broken.write_text("nothing")
    assert run("verify", export, "--key", key.text, "--checkpoint", good).exit_code == 0
    assert run("verify", export, "--key", key.text, "--checkpoint", good, "--checkpoint", bad).exit_code == 1
    assert run("verify", export, "--key", key.text, "--checkpoint", broken).exit_code == 2


class Witnessed(Key):
    """A log whose checkpoints a witness has co-signed, by C2SP's tlog-cosignature."""

    witness = Ed25519PrivateKey.generate()
    witness_name = "witness.example/w"

    @property
    def witness_key(self) -> str:
        return f"{self.witness_name}+{self._witness_hash().hex()}+{base64.b64encode(self._typed()).decode()}"

    def note(self, *said: Any, **more: Any) -> str:
        note = super().note(*said, **more)
        message = f"cosignature/v1\ntime 1800000000\n{note.partition(chr(10) * 2)[0]}\n"
        signature = (1_800_000_000).to_bytes(8, "big") + self.witness.sign(message.encode())
        line = base64.b64encode(self._witness_hash() + signature).decode()
        return f"{note}\N{EM DASH} {self.witness_name} {line}\n"

    def _typed(self) -> bytes:
        return b"\x04" + self.witness.public_key().public_bytes_raw()

    def _witness_hash(self) -> bytes:
        return hashlib.sha256(self.witness_name.encode() + b"\n" + self._typed()).digest()[:4]


def test_a_witness_is_named_by_the_key_that_the_log_knows_it_by(tmp_path: Path, key: Key) -> None:
    witnessed = Witnessed()
    signed = write(tmp_path / "signed", witnessed, a_log(12)[0])
    unsigned = write(tmp_path / "unsigned", key, a_log(12)[0])
    assert run("verify", signed, "--key", witnessed.text, "--witness", witnessed.witness_key).exit_code == 0
    assert run("verify", unsigned, "--key", key.text, "--witness", witnessed.witness_key).exit_code == 1
    assert run("verify", signed, "--key", witnessed.text, "--witness", witnessed.text).exit_code == 2


def test_no_witness_is_demanded_in_vain_of_a_running_mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ignored --witness would look like a satisfied one."""
    good = Report(subject="a log", key_id="a key")
    monkeypatch.setattr("toolmesh_sdk.cli.commands.audit.verify._verify_online", lambda *asked: good)
    assert run("verify", "--state", tmp_path).exit_code == 0
    assert run("verify", "--state", tmp_path, "--witness", Witnessed().witness_key).exit_code == 2


def test_an_empty_key_or_witness_is_a_usage_error(
    tmp_path: Path, export: Path, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unset shell variable must not drop a requirement."""
    monkeypatch.setattr(
        "toolmesh_sdk.cli.commands.audit.verify._verify_online", lambda *asked: Report(subject="a log", key_id="a key")
    )
    assert run("verify", export, "--key", key.text, "--witness", "").exit_code == 2
    assert run("verify", "--state", tmp_path, "--key", " ").exit_code == 2
    assert run("archive", export, "--state", tmp_path, "--key", "").exit_code == 2
    monkeypatch.setenv("TOOLMESH_AUDIT_KEY", "")
    assert run("verify", "--state", tmp_path).exit_code == 2


def program(*arguments: Any, **more: Any) -> Any:
    command = [sys.executable, "-m", "toolmesh_sdk", "audit", *map(str, arguments)]
    # stdout is buffered, as in a normal environment.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, **more)


def test_a_local_failure_is_not_reported_as_tampering(export: Path, key: Key) -> None:
    with Path("/dev/full").open("wb") as full:
        assert program("verify", export, "--key", key.text, stdout=full).wait(60) == 2


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_the_exit_code_is_the_same_when_stdout_is_closed(export: Path, key: Key, form: tuple[str, ...]) -> None:
    good = program("verify", export, "--key", key.text, *form, stdout=subprocess.PIPE)
    good.stdout.close()
    assert (good.wait(60), good.stderr.read()) == (0, b"")
    change_lines(export, lambda lines: [*lines[:7], *lines[8:]])
    bad = program("verify", export, "--key", key.text, *form, stdout=subprocess.PIPE)
    bad.stdout.close()
    assert (bad.wait(60), bad.stderr.read()) == (1, b"")


def test_a_part_is_enough_unless_the_whole_is_demanded(tmp_path: Path, key: Key) -> None:
    part = write(tmp_path / "part", key, a_log(12)[0], end=7)
    ran = run("verify", part, "--key", key.text)
    assert ran.exit_code == 0
    assert "a part of the log" in ran.stdout
    assert run("verify", part, "--key", key.text, "--whole").exit_code == 1
    whole = write(tmp_path / "whole", key, a_log(12)[0])
    assert run("verify", whole, "--key", key.text, "--whole").exit_code == 0


def test_an_export_is_verified_without_network_and_without_the_services(export: Path, key: Key) -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise AssertionError('the network was used')\n"
        "socket.socket.connect = socket.create_connection = refuse\n"
        "from toolmesh_sdk.audit import VerifierKey, verify_export\n"
        "from pathlib import Path\n"
        "report = verify_export(Path(sys.argv[1]), VerifierKey.parse(sys.argv[2]))\n"
        "assert not {'grpc', 'services', 'libs', 'psycopg', 'sqlalchemy'} & set(sys.modules), 'more was loaded'\n"
        "sys.exit(report.exit_code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(export), key.text], timeout=60, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "options",
    [("--shard", "1", "--from", "3"), ("--from", "yesterday"), ("--to", "2026-13-01"), ("--shard", "-1")],
    ids=" ".join,
)
def test_an_export_of_what_cannot_be_meant_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert run("export", "--out", tmp_path / "out", *options).exit_code == 2


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert run("export", "--out", tmp_path).exit_code == 2
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


def test_without_a_mesh_nothing_is_exported(tmp_path: Path) -> None:
    assert run("export", "--out", tmp_path / "out", "--state", tmp_path).exit_code == 3


def test_what_is_pinned_of_another_mesh_is_not_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state folder with other files in it cannot be used by `toolmesh up`, and `toolmesh reset` deletes it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    state = tmp_path / "state"
    assert pinned_file(Target(state=state)) == state / "verifier.json"
    other = pinned_file(Target(state=state, url="https://mesh.example:8443"))
    assert other == tmp_path / "config" / "toolmesh" / "verifier" / "mesh.example_8443.json"
    assert pinned_file(Target(state=state, url="https://mesh.example:9443")) != other
