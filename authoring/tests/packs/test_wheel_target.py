"""What wheels and packages an interpreter of an executor takes."""

from __future__ import annotations

import pytest
from packaging.tags import Tag, sys_tags

from authoring.packs.wheel_target import PLATFORMS, PYTHONS, WheelTarget
from services.executor.adapters.runners.packs.package_lock import read_lock

GLIBC = WheelTarget("3.12", "manylinux_2_28_x86_64")


@pytest.mark.parametrize(
    ("tag", "runs"),
    [
        (Tag("cp312", "cp312", "manylinux_2_28_x86_64"), True),
        (Tag("cp312", "cp312", "manylinux2014_x86_64"), True),
        (Tag("cp312", "cp312", "manylinux1_x86_64"), True),
        (Tag("cp311", "abi3", "manylinux_2_17_x86_64"), True),
        (Tag("py3", "none", "any"), True),
        (Tag("cp312", "cp312", "manylinux_2_34_x86_64"), False),
        (Tag("cp312", "cp312", "manylinux_2_28_aarch64"), False),
        (Tag("cp312", "cp312", "musllinux_1_2_x86_64"), False),
        (Tag("cp311", "cp311", "manylinux_2_28_x86_64"), False),
        (Tag("cp313", "abi3", "manylinux_2_28_x86_64"), False),
    ],
)
def test_glibc_runs_older_wheels_of_its_architecture(tag: Tag, runs: bool) -> None:
    assert (tag in GLIBC.ranks) is runs


def test_musl_runs_its_own_wheels() -> None:
    target = WheelTarget("3.11", "musllinux_1_2_aarch64")
    assert target.platforms[1:3] == ("musllinux_1_2_aarch64", "musllinux_1_1_aarch64")
    assert Tag("cp311", "cp311", "manylinux2014_aarch64") not in target.ranks


def test_the_order_is_that_of_an_interpreter() -> None:
    version = next(iter(sys_tags())).interpreter
    for platform in PLATFORMS:
        own = [tag for tag in sys_tags() if tag.platform in (*WheelTarget("3.11", platform).platforms, "any")]
        if len({tag.platform for tag in own}) > 1:
            target = WheelTarget(f"3.{version[3:]}", platform)
            assert [tag for tag in target.ranks if tag in set(own)] == own


def test_a_target_needs_what_any_of_its_patch_releases_needs() -> None:
    markers = (
        "python_full_version < '3.12.3'", "python_full_version >= '3.12.4'", "python_version >= '3.13'",
        "sys_platform == 'win32'", "platform_machine == 'x86_64'", "platform_machine == 'aarch64'",
    )  # fmt: skip
    lock = "".join(f"demo==1 ; {marker} --hash=sha256:{'a' * 64}\n" for marker in markers)
    assert [GLIBC.needs(package) for package in read_lock(lock)] == [True, True, False, False, True, False]


@pytest.mark.parametrize(
    ("python", "platform"),
    [("3", PLATFORMS[0]), ("2.7", PLATFORMS[0]), (PYTHONS[0], "win_amd64"), ("3.12.1", PLATFORMS[0])],
)
def test_what_is_no_interpreter_is_refused(python: str, platform: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        WheelTarget(python, platform)
