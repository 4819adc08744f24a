"""`toolmesh audit shards`, `close`, `archive`, `erase` and `hold` against a real log."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk.audit.export.exporter import Selection, export
from toolmesh_sdk.cli.main import build
from typer.testing import CliRunner

from tests.evidence.conftest import LogCopy
from tests.evidence.live_log import LiveLog, records

EXPIRED = "update shards set close_time = now() - interval '8 years' where number <= 1"
Run = Callable[..., Any]


@pytest.fixture
def log(copy: Callable[[], LogCopy]) -> Iterator[LiveLog]:
    """A log of three shards, the last one open; the first two are past their retention period."""
    made = copy()
    made.sql(EXPIRED)
    with made.serve() as running:
        yield running


@pytest.fixture
def toolmesh(log: LiveLog, pki: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the command line as operator and returns its JSON output."""
    for name in ("TOOLMESH_URL", "TOOLMESH_TOKEN", "TOOLMESH_CA", "TOOLMESH_AUDIT_KEY"):
        monkeypatch.delenv(name, raising=False)
    state = tmp_path / "state"
    state.mkdir()
    own = pki.of("operator")
    runtime = {
        "running": True,
        "runner_pid": os.getpid(),
        "ca": str(pki.ca),
        "operator": {"cert": str(own.cert), "key": str(own.key)},
        "services": [{"name": "audit", "address": log.address}],
    }
    (state / "runtime.json").write_text(json.dumps(runtime))

    def run(*arguments: str, exit_code: int = 0) -> Any:
        command = ["audit", *arguments, "--state", str(state), "--json"]
        ran = CliRunner().invoke(build(plugins=()), command)
        assert ran.exit_code == exit_code, ran.output
        return json.loads(ran.stdout) if ran.stdout else None

    return run


def states(toolmesh: Run) -> list[str]:
    return [shard["state"] for shard in toolmesh("shards")["shards"]]


def reason(answer: Any) -> str:
    return str(answer["error"]["reason"])


def test_the_open_shard_is_closed_and_the_next_one_opened(toolmesh: Run, log: LiveLog) -> None:
    assert states(toolmesh) == ["closed", "closed", "open"]
    assert toolmesh("close")["shards"][0]["number"] == 2
    assert states(toolmesh) == ["closed", "closed", "closed", "open"]
    # Closing the same shard again succeeds.
    assert toolmesh("close", "2")["shards"][0]["state"] == "closed"
    assert reason(toolmesh("close", "7", exit_code=1)) == "NOT_FOUND"
    assert len(states(toolmesh)) == 4


def test_an_export_becomes_the_archive_of_the_shards_that_are_closed(
    toolmesh: Run, log: LiveLog, tmp_path: Path
) -> None:
    done = export(log.remote(), tmp_path / "all", Selection())
    noted = toolmesh("archive", str(tmp_path / "all"))["shards"]
    assert [(each["number"], each["state"]) for each in noted] == [(0, "archived"), (1, "archived")]
    assert [each["manifest_digest"] for each in noted] == [done.digests[f"shard-{n:05d}"] for n in (0, 1)]
    assert states(toolmesh) == ["archived", "archived", "open"]


def test_an_archived_shard_may_be_dropped(toolmesh: Run, log: LiveLog, tmp_path: Path) -> None:
    export(log.remote(), tmp_path / "one", Selection(shard=1))
    assert toolmesh("archive", str(tmp_path / "one"), "--drop")["shards"][0]["state"] == "dropped"
    assert states(toolmesh) == ["closed", "dropped", "open"]


def test_a_folder_that_is_not_the_whole_shard_is_not_noted(toolmesh: Run, log: LiveLog, tmp_path: Path) -> None:
    export(log.remote(), tmp_path / "part", Selection(first=10, end=200))
    toolmesh("archive", str(tmp_path / "part"), "--drop", exit_code=1)
    export(log.remote(), tmp_path / "edited", Selection(shard=0))
    [lines] = (tmp_path / "edited").glob("records-*.ndjson")
    lines.write_bytes(b"".join(lines.read_bytes().splitlines(keepends=True)[:-1]))
    toolmesh("archive", str(tmp_path / "edited"), "--drop", exit_code=1)
    toolmesh("archive", str(tmp_path / "nowhere"), "--drop", exit_code=1)
    assert states(toolmesh) == ["closed", "closed", "open"]


def test_an_open_shard_cannot_be_archived(toolmesh: Run, log: LiveLog, tmp_path: Path) -> None:
    export(log.remote(), tmp_path / "open", Selection(shard=2))
    toolmesh("archive", str(tmp_path / "open"), exit_code=1)
    assert states(toolmesh) == ["closed", "closed", "open"]


def test_the_shard_of_another_log_is_not_noted(
    toolmesh: Run, log: LiveLog, copy: Callable[[], LogCopy], tmp_path: Path
) -> None:
    """A fork of the same log, signed by the same key."""
    other = copy()
    with other.serve() as fork:
        fork.append(records(3, 7000))
        fork.close_shard(2)
        export(fork.remote(), tmp_path / "fork", Selection(shard=2))
    toolmesh("close")
    toolmesh("archive", str(tmp_path / "fork"), exit_code=1)
    assert states(toolmesh) == ["closed", "closed", "closed", "open"]


def test_a_hold_keeps_records_until_it_is_released(toolmesh: Run, log: LiveLog, tmp_path: Path) -> None:
    placed = toolmesh("hold", "place", "case-7", "--from", "310", "--to", "320", "--reason", "a dispute")["holds"][0]
    assert (placed["first_sequence"], placed["end_sequence"], placed["reason"]) == (310, 320, "a dispute")
    assert reason(toolmesh("erase", "312", "--reason", "asked for", exit_code=1)) == "FAILED_PRECONDITION"
    export(log.remote(), tmp_path / "one", Selection(shard=1))
    assert reason(toolmesh("archive", str(tmp_path / "one"), "--drop", exit_code=1)) == "FAILED_PRECONDITION"
    assert [each["hold_id"] for each in toolmesh("hold", "list")["holds"]] == ["case-7"]
    assert "release_time" in toolmesh("hold", "release", "case-7", "--reason", "settled")["holds"][0]
    erased = toolmesh("erase", "312", "--reason", "asked for")
    assert toolmesh("erase", "312", "--reason", "asked for") == erased
    assert toolmesh("archive", str(tmp_path / "one"), exit_code=0)["shards"][0]["state"] == "archived"


def test_the_text_output_matches_the_json(toolmesh: Run, tmp_path: Path) -> None:
    toolmesh("hold", "place", "case-8", "--reason", "a dispute")
    state = str(tmp_path / "state")
    shown = CliRunner().invoke(build(plugins=()), ["audit", "shards", "--state", state]).stdout.splitlines()
    assert [line.split()[:4] for line in shown[1:]] == [
        ["0", "closed", "0", "300"],
        ["1", "closed", "300", "641"],
        ["2", "open", "941", "101"],
    ]
    held = CliRunner().invoke(build(plugins=()), ["audit", "hold", "list", "--state", state]).stdout.splitlines()
    assert held[1].split()[:2] == ["case-8", "holds"]
