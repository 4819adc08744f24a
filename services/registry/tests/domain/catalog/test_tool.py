"""The attributes of a tool while versions are added."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from services.registry.convert.manifest import manifest_of
from services.registry.domain.catalog.tool import with_version
from services.registry.domain.model import LifecycleState, Standing, Tool, ToolVersion, VersionHead
from services.registry.tests.manifests import reader

START = datetime(2026, 1, 1, tzinfo=UTC)


def version(number: str, minute: int, *aliases: str) -> ToolVersion:
    manifest = manifest_of(reader(version=number, title=f"Title of {number}", tags=[number], aliases=aliases))
    moment = START + timedelta(minutes=minute)
    standing = Standing(LifecycleState.AVAILABLE, moment, minute + 1)
    head = VersionHead(manifest.name, manifest.version, manifest.digest, 1, moment, "operator", standing)
    return ToolVersion(head, manifest)


def grow(*versions: ToolVersion) -> Tool:
    tool: Tool | None = None
    for index, added in enumerate(versions):
        tool = with_version(tool, [v.head for v in versions[:index]], added)
    assert tool is not None
    return tool


def test_the_first_version_makes_the_tool() -> None:
    tool = grow(version("1.0.0", 0, "seek_order"))
    assert (tool.title, tool.latest_version, tool.aliases) == ("Title of 1.0.0", "1.0.0", ("seek_order",))
    assert tool.create_time == tool.update_time == START


def test_title_and_tags_follow_the_latest_version_whenever_it_comes() -> None:
    tool = grow(version("2.0.0", 0), version("1.0.0", 1), version("3.0.0-rc.1", 2))
    assert (tool.title, tool.latest_version, tool.tags[-1]) == ("Title of 2.0.0", "2.0.0", "2.0.0")
    assert tool.update_time == START + timedelta(minutes=2)
    assert tool.create_time == START
    assert grow(version("2.0.0", 0), version("10.0.0", 1)).title == "Title of 10.0.0"


def test_without_a_latest_version_the_highest_gives_the_title() -> None:
    tool = grow(version("1.0.0-rc.2", 0), version("1.0.0-rc.1", 1))
    assert (tool.title, tool.latest_version) == ("Title of 1.0.0-rc.2", "")


def test_aliases_are_never_forgotten() -> None:
    assert grow(version("1.0.0", 0, "seek_order"), version("2.0.0", 1, "look_up")).aliases == ("look_up", "seek_order")
