"""The tokens of the local user, and their renewal."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from toolmesh_sdk import Reason
from toolmesh_sdk.cli.inputs import target
from toolmesh_sdk.cli.inputs.target import LOCAL_TOKEN_SECONDS, LocalTokens, Target
from toolmesh_sdk.errors import error_for_reason


def test_a_token_of_this_machine_is_replaced_well_before_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now, minted = [0.0], iter(["second", "", "third"])
    monkeypatch.setattr(target.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(target, "_local_token_for", lambda of: next(minted))
    tokens = LocalTokens(Target(state=tmp_path), "first")
    shown = []
    for _ in range(7):
        shown.append(tokens.current())
        now[0] += LOCAL_TOKEN_SECONDS * 0.3
    # A mesh that was away for a moment is shown the last one again.
    assert shown == ["first", "first", "second", "second", "second", "second", "third"]


@pytest.mark.parametrize(
    "failure", [error_for_reason(Reason.SERVICE_UNAVAILABLE), typer.BadParameter("no certificate")]
)
def test_a_mesh_that_makes_no_token_for_the_moment_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: Exception
) -> None:
    """A command that follows the log survives a restart of the mesh, and gets the next token afterwards."""
    now, minted = [0.0], iter([failure, "second"])

    def mint(of: Target) -> str:
        if isinstance(made := next(minted), Exception):
            raise made
        return made

    monkeypatch.setattr(target.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(target, "_local_token_for", mint)
    tokens = LocalTokens(Target(state=tmp_path), "first")
    now[0] += LOCAL_TOKEN_SECONDS * 0.6
    assert [tokens.current(), tokens.current(), tokens.current()] == ["first", "second", "second"]
