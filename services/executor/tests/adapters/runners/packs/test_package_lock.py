"""Locks of packs: what they pin, and for which interpreters."""

from __future__ import annotations

import pytest

from services.executor.adapters.runners.packs.package_lock import WheelError, read_lock

A, B = "a" * 64, "b" * 64


def test_a_lock_is_read_as_pip_writes_it() -> None:
    text = (
        f"# made\nDemo_Package==1.0 \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\n\nother==2 --hash=sha256:{A}\n"
    )
    first, second = read_lock(text)
    assert (first.name, first.version, first.digests) == ("demo-package", "1.0", {A, B})
    assert second.name == "other"
    assert first.is_needed()


def test_a_marker_says_which_interpreters_need_a_package() -> None:
    text = f"demo==1.0 ; python_version < '3.12' and sys_platform == 'linux' \\\n    --hash=sha256:{A}\n"
    [package] = read_lock(text)
    assert package.digests == {A}
    for python, platform, needed in (("3.11", "linux", True), ("3.12", "linux", False), ("3.11", "win32", False)):
        assert package.is_needed({"python_version": python, "sys_platform": platform}) is needed


@pytest.mark.parametrize(
    "line",
    [
        "demo==1.0",
        "demo>=1.0 --hash=sha256:" + A,
        "demo==1.0 --hash=md5:abc",
        "-e .",
        "--index-url x",
        "demo @ file:///x",
        "demo==1.0 ; sys_platform --hash=sha256:" + A,
        "demo==1.0 ; " + "(" * 2000 + "sys_platform == 'linux'" + ")" * 1900 + " --hash=sha256:" + A,
        "demo==1.0 ; sys_platform == 'linux'",
    ],
)
def test_a_line_without_a_pin_and_hashes_is_refused(line: str) -> None:
    with pytest.raises(WheelError):
        read_lock(f"{line}\n")


def test_a_marker_that_cannot_be_evaluated_is_refused() -> None:
    [package] = read_lock(f"demo==1.0 ; python_version ~= 'abc' --hash=sha256:{A}\n")
    with pytest.raises(WheelError):
        package.is_needed()
