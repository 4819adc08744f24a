"""The next versions of a tool under development."""

from __future__ import annotations

from authoring.packs.register_pack import next_versions
from libs.common.semver import Version


def test_the_smallest_step_comes_first() -> None:
    assert [str(version) for version in next_versions(Version.parse("1.2.3"))] == ["1.2.4", "1.3.0", "2.0.0"]
    assert [str(version) for version in next_versions(Version.parse("0.0.1-rc.1"))] == ["0.0.2", "0.1.0", "1.0.0"]
