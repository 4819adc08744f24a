"""The requirements of a pack. tests/upstreams locks real packages."""

from __future__ import annotations

from pathlib import Path

from authoring.packs.lock_packages import REQUIREMENTS, add_requirements


def test_a_requirement_of_the_same_package_is_replaced(tmp_path: Path) -> None:
    add_requirements(tmp_path, ["httpx", "Typing_Extensions>=4"])
    add_requirements(tmp_path, ["httpx>=0.28", "typing-extensions==4.16"])
    assert (tmp_path / REQUIREMENTS).read_text().splitlines() == ["httpx>=0.28", "typing-extensions==4.16"]
