"""Which results may be used again, and for whom."""

from __future__ import annotations

from typing import Any

import pytest

from services.executor.domain.argument_spec import ArgumentSpec, Fill
from services.executor.domain.results.cache import cache_key_for
from services.executor.domain.tool import Mutation
from services.executor.tests.samples import a_caller, a_tool


@pytest.mark.parametrize(
    "changes",
    [{}, {"cache_seconds": 0.0}, {"cache_seconds": 5.0, "mutation": Mutation.WRITE_REVERSIBLE}],
)
def test_nothing_is_used_again_that_does_not_say_so_or_changes_the_world(changes: dict[str, Any]) -> None:
    assert cache_key_for(a_tool(**changes), a_caller(), "sha256:a") is None


def test_a_key_differs_with_everything_that_could_make_a_result_another() -> None:
    tool, caller = a_tool(cache_seconds=5.0), a_caller(tenant="acme")
    key = cache_key_for(tool, caller, "sha256:a")
    assert key is not None
    others = [
        cache_key_for(a_tool(cache_seconds=5.0, digest="sha256:other"), caller, "sha256:a"),
        cache_key_for(tool, a_caller(tenant="evil"), "sha256:a"),
        cache_key_for(tool, a_caller(tenant="acme", subject="did:web:toolmesh.local:users:bob"), "sha256:a"),
        cache_key_for(tool, caller, "sha256:b"),
        cache_key_for(tool, caller, "sha256:a", "process/bubblewrap python kit@sha256:other"),
    ]
    assert len({key, *others}) == 6
    assert cache_key_for(tool, a_caller(tenant="acme", token_id="another"), "sha256:a") == key


@pytest.mark.parametrize(
    ("fact", "kept"), [("", True), ("tenant", True), ("subject", True), ("session_id", False), ("invocation_id", False)]
)
def test_what_the_mesh_tells_a_tool_is_a_part_of_the_key_or_there_is_none(fact: str, kept: bool) -> None:
    argument_spec = ArgumentSpec(fills=(Fill("internal", fact, 1, True),))
    assert (
        cache_key_for(a_tool(cache_seconds=5.0, argument_spec=argument_spec), a_caller(), "sha256:a") is not None
    ) is kept
