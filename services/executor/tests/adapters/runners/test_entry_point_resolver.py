"""The resolver of entry points: one resolution per tool digest, until the packs change."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.adapters.runners.entry_point_resolver import (
    EntryPointResolver,
    ResolvedEntryPoint,
    sandbox_label,
)
from services.executor.adapters.runners.packs.packs import Pack
from services.executor.domain.tool import Tool
from services.executor.tests.samples import a_tool

PACK = Pack("shop", "sha256:1", Path("/copies/0"), frozenset(), frozenset())


class Resolutions:
    """Counts the resolutions of each digest. Tools named in `missing` cannot run."""

    def __init__(self, *missing: str) -> None:
        self.digests: list[str] = []
        self._missing = missing

    def resolve(self, tool: Tool) -> ResolvedEntryPoint[str] | str:
        self.digests.append(tool.digest)
        return "a pack" if tool.digest in self._missing else ResolvedEntryPoint("main", f"box {tool.digest}", PACK)


def test_a_digest_is_resolved_once() -> None:
    resolutions = Resolutions("b")
    resolver = EntryPointResolver(resolutions.resolve)
    for _ in range(3):
        assert resolver.sandbox_name(a_tool(digest="a")) == "box a"
        assert resolver.sandbox_name(a_tool(digest="b")) is None
        assert resolver.missing_for(a_tool(digest="a")) == ""
        assert resolver.missing_for(a_tool(digest="b")) == "a pack"
    assert resolutions.digests == ["a", "b"]


def test_a_tool_that_cannot_run_here_is_an_error_when_it_is_required() -> None:
    resolver = EntryPointResolver(Resolutions("b").resolve)
    assert resolver.require(a_tool(digest="a")).target == "main"
    with pytest.raises(MeshError) as caught:
        resolver.require(a_tool(digest="b"))
    assert caught.value.reason is Reason.TOOL_UNAVAILABLE
    assert caught.value.metadata["state_reason"] == "a pack"


def test_only_an_entry_point_of_a_pack_binds_a_folder() -> None:
    assert ResolvedEntryPoint("main", "box", PACK).binds == [("/copies/0", "/packs/shop")]
    assert ResolvedEntryPoint("/usr/bin/sort", "box").binds == []


def test_a_label_fits_into_an_audit_record() -> None:
    assert sandbox_label("process/bubblewrap", "python", PACK.label) == "process/bubblewrap python shop@sha256:1"
    assert len(sandbox_label("box", "command", "x" * 300)) == 255


def test_a_changed_pack_is_resolved_again_but_not_for_a_call_under_way() -> None:
    revisions, resolutions = [0], Resolutions()
    resolver = EntryPointResolver(resolutions.resolve, lambda: revisions[-1])
    tool = a_tool(digest="a")
    decided, before = resolver.sandbox_name(tool), resolver.find(tool)
    assert decided is not None
    revisions.append(1)
    assert resolver.find(tool) is not before
    assert resolver.require(tool, decided) is before
    # A plain text, such as that of another process, refers to no code.
    assert resolver.require(tool, str(decided)) is resolver.find(tool)
    assert resolutions.digests == ["a", "a"]
